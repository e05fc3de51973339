"""What the caller of an agent hears when its work has ended."""

from __future__ import annotations

from aar.core.agent import RunResult
from aar.protocol.errors import ToolCategory
from aar.protocol.state import StopReason
from aar.protocol.tool import ToolOutcome
from aar.safety.outside import framed

_ENDINGS = {
    StopReason.MAX_STEPS: "It used all its steps, so the work may be unfinished.",
    StopReason.TIMEOUT: "Its time ran out, so the work may be unfinished.",
    StopReason.BUDGET: "The budget ran out, so the work may be unfinished.",
    StopReason.DENIED: "A call that it needed was not allowed, so it stopped.",
    StopReason.REPETITION: "It repeated itself without progress and was stopped.",
    StopReason.CANCELLED: "It was stopped before it was done.",
    StopReason.REFUSAL: "Its model declined.",
    StopReason.MAX_TOKENS: "Its answer was cut at the output limit.",
    StopReason.EMPTY: "It gave no answer.",
    StopReason.STOPPED: "It was asked to stop.",
}


def outcome(agent_id: str, result: RunResult, note: str = "") -> ToolOutcome:
    """Return what the parent hears: the report as data, how the work ended, and ``note``."""
    ending = _ENDINGS.get(result.stop_reason)
    if result.stop_reason is StopReason.ERROR:
        ending = f"It failed: {(result.error or {}).get('message', 'no reason is known')}"
    lines = [f"[agent {agent_id}: {result.steps} steps{_changed(result)}]"]
    if ending:
        lines.append(ending)
    if result.text.strip():
        lines.append(framed(result.text.strip(), f"report of {agent_id}"))
    if note:
        lines.append(note)
    failed = result.exit_code != 0 and not result.text.strip()
    text = "\n".join(lines)
    if failed:
        return ToolOutcome(
            f"Error [{ToolCategory.EXCEPTION}]: {text}", is_error=True, category=ToolCategory.EXCEPTION
        )
    return ToolOutcome(text)


def _changed(result: RunResult) -> str:
    if not result.file_changes:
        return ""
    names = [change.path for change in result.file_changes]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"; changed {', '.join(names[:10])}{more}"
