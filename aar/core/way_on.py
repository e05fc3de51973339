"""What a user is offered when a run ended at a limit: how the same work goes on."""

from __future__ import annotations

from collections.abc import Sequence

from aar.core.budget import Line
from aar.core.limits import Reached, RunLimits
from aar.protocol.state import StopReason

CODE = "go_on"
"""Of the notice that holds the offer."""
_ENDS = frozenset({StopReason.BUDGET, StopReason.MAX_STEPS, StopReason.TIMEOUT})


def raised(line: Line) -> float:
    """Return the limit that is offered in place of one that was reached, in US dollars."""
    return round(max(line.limit, line.spent) * 2, 2)


def way_on(
    reason: StopReason, limits: RunLimits, lines: Sequence[Line], session_id: str | None, *, commands: bool
) -> str | None:
    """Return a sentence that says how to go on after ``reason``; ``None``: there is nothing to offer.

    Args:
        reason: Why the run ended.
        limits: Of the run.
        lines: ``[budget]`` as it stands.
        session_id: Of the session; ``None`` where it is not kept.
        commands: Whether the user can type slash commands; else flags are named.
    """
    if reason not in _ENDS:
        return None
    reached = limits.reached_limits()
    over = [line for line in lines if line.span in {item.name for item in reached}]
    own = [item for item in reached if item.flag]
    if commands:
        return _by_command(over, own)
    flags = [f"--set budget.{line.span}_usd={raised(line):g}" for line in over]
    if not flags:
        flags = [f"{item.flag}{item.limit * 2:g}" for item in own]
    more = " ".join(flags)
    if session_id is None:
        return f"{more} lets it go further." if more else None
    return f'To go on: aar run --session {session_id} {more} "go on"'.replace("  ", " ")


def _by_command(over: Sequence[Line], own: Sequence[Reached]) -> str:
    if over:
        typed = " and ".join(f"/budget {line.span} {raised(line):g}" for line in over)
        return f"{typed} raises the limit to that many dollars and goes on."
    each = ", ".join(f"{item.key} = {item.limit:g}" for item in own)
    return f"Say “go on” and it goes on with as much again{f' ({each}, for each prompt)' if each else ''}."
