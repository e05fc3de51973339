"""Several attempts at one task, of which the user picks one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aar.commands import git_facts
from aar.commands.base import (
    Choice,
    ChoiceItem,
    Command,
    Context,
    Failure,
    Result,
    Text,
    fence,
    money,
    need_idle,
    starting_with,
)
from aar.protocol.errors import UsageError

if TYPE_CHECKING:
    from aar.orchestration.alternatives import Comparison

_USAGE = 'Write /alternatives N TASK, with --check "COMMAND" before the task where a command tells what is \
right.'
_CHECK = re.compile(r"""--check\s+(?:"(?P<quoted>[^"]+)"|'(?P<single>[^']+)'|(?P<word>[^\s"']+))\s*""")
_CALLED_OFF = "The attempts were called off; nothing was changed."


async def _alternatives(context: Context, argument: str) -> Result:
    """Try a task several times, or pick one of the attempts."""
    verb, _, rest = argument.partition(" ")
    if verb in ("", "list", "show", "pick"):
        return await _with_attempts(context, verb or "list", rest.strip())
    count, checks, task = _parsed(argument)
    need_idle(context)
    await git_facts.need_repository(context)
    if context.conversation.mode == "plan":
        return Failure("Mode plan changes nothing, and attempts do; change the mode first.")
    from aar.runtime.alternatives import try_alternatives

    checks = checks or list(context.runtime.config.verify.commands)
    work = try_alternatives(context.conversation, task, count, checks)
    comparison = await context.conversation.beside(work)
    return Failure(_CALLED_OFF) if comparison is None else _shown(comparison)


def _parsed(argument: str) -> tuple[int, list[str], str]:
    """Return count, checks and task."""
    from aar.orchestration.alternatives import MAX_ATTEMPTS

    first, _, rest = argument.partition(" ")
    checks: list[str] = []
    rest = rest.strip()
    while (match := _CHECK.match(rest)) is not None:
        checks.append(match["quoted"] or match["single"] or match["word"])
        rest = rest[match.end() :]
    if not first.isdigit() or len(first) > 3 or not rest:
        raise UsageError(_USAGE)
    if not 2 <= int(first) <= MAX_ATTEMPTS:
        raise UsageError(f"From 2 to {MAX_ATTEMPTS} attempts can be compared.")
    return int(first), checks, rest


def _shown(comparison: Comparison) -> Result:
    known = all(item.cost_usd is not None for item in comparison.attempts)
    cost = money(sum(item.cost_usd or 0 for item in comparison.attempts), known=known)
    if not any(item.usable for item in comparison.attempts):
        told = "; ".join(f"{item.number}: {item.line()}" for item in comparison.attempts)
        return Failure(f"No attempt came to anything ({cost}). {told}")
    items = tuple(
        ChoiceItem(
            f"attempt {item.number}",
            f"/alternatives pick {item.number}" if item.usable else f"/alternatives show {item.number}",
            item.line(),
        )
        for item in comparison.attempts
    )
    more = "The best first. /alternatives show N shows the changes, pick N makes them here."
    return Choice(f"{len(items)} attempts ({cost})", items, f"{comparison.why}\n{more}".strip())


async def _with_attempts(context: Context, verb: str, rest: str) -> Result:
    from aar.orchestration.alternatives import latest_comparison

    comparison = await asyncio.to_thread(lambda: latest_comparison(context.session.events()))
    if comparison is None:
        return Failure(f"There are no attempts in this session. {_USAGE}")
    if verb == "list":
        return _shown(comparison)
    attempt = comparison.attempt(int(rest)) if rest.isdigit() and len(rest) < 4 else None
    if attempt is None:
        return Failure(f"Say which: /alternatives {verb} NUMBER.")
    if verb == "show":
        parts = [f"**Attempt {attempt.number}**: {attempt.line()}", attempt.answer.strip()]
        parts += [fence(attempt.output)] if attempt.output else []
        return Text("\n\n".join([*parts, fence(attempt.diff, "diff")]))
    if not attempt.usable:
        return Failure(f"Attempt {attempt.number} cannot be picked: {attempt.line()}.")
    need_idle(context)
    from aar.orchestration.merge_back import left_out
    from aar.runtime.alternatives import pick

    result = await context.conversation.beside(pick(context.conversation, attempt))
    if result is None:
        return Failure(_CALLED_OFF)
    if result.is_error:
        return Failure(result.output)
    note = left_out(attempt.diff)
    told = f"Attempt {attempt.number} is here now; /undo takes it back. {note}".rstrip()
    return Text(f"{told}\n\n{result.output}")


def _complete(context: Context, text: str) -> Sequence[str]:
    return starting_with(["list", "show ", "pick ", "2 ", "3 "], text) if " " not in text else []


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("alternatives", "Try a task several times in copies, compare, pick one.", _alternatives,
                usage='[N [--check "CMD"] TASK|list|show N|pick N]', group="work", complete=_complete,
                example='/alternatives 3 --check "pytest -q" make the parser faster'),
    ]  # fmt: skip
