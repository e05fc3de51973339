"""`/why`: the last decision that aar made on its own, told from the session's events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from aar.commands.base import Command, Context, Failure, Result, Text, one_line, starting_with
from aar.memory.session_store import SessionStore
from aar.protocol.events import (
    Approval,
    ApprovalRequest,
    Compaction,
    ErrorEvent,
    Event,
    ModelSwitch,
    Notice,
    Retry,
    Setting,
    StateEvent,
    ToolCall,
    ToolResult,
)
from aar.tools.builtin.describe import describe_call

KINDS = ("permission", "wall", "retry", "fallback", "compaction", "mode", "stop")
_TAIL = 3000
_BY = {
    "user": "you",
    "policy": "the rules and protections",
    "hook": "a hook",
    "mode": "the permission mode",
}
_WALL_WORDS = ("sandbox", "wall", "network", "host", "refused")


async def _why(context: Context, argument: str) -> Result:
    """Explain the last decision, or the last one of a kind."""
    if argument and argument not in KINDS:
        return Failure(f"/why explains one of {', '.join(KINDS)}; without a word it explains the last.")
    events = await asyncio.to_thread(_tail, context)
    wanted = (argument,) if argument else KINDS
    told = explain_last(events, wanted)
    if told is None:
        return Text(f"There was no {argument} decision yet." if argument else "Nothing was decided yet.")
    return Text(told)


def _tail(context: Context) -> list[Event]:
    session, store = context.session, context.runtime.store
    if isinstance(store, SessionStore) and not session.degraded:
        return store.tail(session.session_id, _TAIL)
    return list(islice(session.events(max(1, session.last_seq - _TAIL)), _TAIL + 1))


def explain_last(events: Sequence[Event], kinds: Sequence[str]) -> str | None:
    """Return in words what the last decision of one of ``kinds`` was and why; ``None``: there was none."""
    for place in range(len(events) - 1, -1, -1):
        for kind in kinds:
            told = _EXPLAIN[kind](events, place)
            if told:
                return told
    return None


def _permission(events: Sequence[Event], place: int) -> str:
    event = events[place]
    if isinstance(event, ApprovalRequest) and not _answered(events, place):
        return f"A question is open: {_call_words(event)}.\n{_reasons(event)}"
    if not isinstance(event, Approval):
        return ""
    call = _last(events, place, ToolCall, lambda item: item.call_id == event.call_id)
    what = _call_words(call) if call is not None else "a call"
    said = {"allow": "was allowed", "reject": "was refused", "cancelled": "was not decided"}[event.decision]
    lines = [f"{what} **{said}** by {_BY[event.by]}."]
    if event.rule:
        lines.append(f"- The rule is `{event.rule}`" + (f", kept for the {event.scope}." if
                     event.scope != "once" else "."))  # fmt: skip
    request = _last(events, place, ApprovalRequest, lambda item: item.request_id == event.request_id)
    if request is not None:
        lines.append(_reasons(request))
    result = next((item for item in events[place:] if isinstance(item, ToolResult)
                   and item.call_id == event.call_id), None)  # fmt: skip
    if result is not None and event.decision != "allow":
        lines.append(f"- The model was told: {one_line(result.output, 400)}")
    if event.edited_arguments is not None:
        lines.append("- You edited its arguments first.")
    if event.feedback:
        lines.append(f"- You said: {one_line(event.feedback, 400)}")
    return "\n".join(line for line in lines if line)


def _answered(events: Sequence[Event], place: int) -> bool:
    request = events[place]
    return isinstance(request, ApprovalRequest) and any(
        isinstance(item, Approval) and item.request_id == request.request_id for item in events[place:]
    )


def _call_words(event: ToolCall | ApprovalRequest) -> str:
    return f"`{describe_call(event.tool_name, event.arguments)}`"


def _reasons(request: ApprovalRequest) -> str:
    rule: Any = request.why.get("rule")
    lines = [f"- It was asked because {reason}." for reason in map(str, request.why.get("reasons") or ())]
    if isinstance(rule, dict):
        lines.append(f"- The rule `{rule.get('text')}` ({rule.get('layer')}) asks.")  # pyright: ignore[reportUnknownMemberType]
    if not lines:
        lines.append("- It was asked because the permission mode asks for calls of this kind.")
    if request.wall:
        lines.append(f"- The wall around it: {request.wall}.")
    return "\n".join(lines)


def _wall(events: Sequence[Event], place: int) -> str:
    event = events[place]
    if isinstance(event, ToolResult) and event.category == "sandbox":
        return f"The wall stopped a call: {one_line(event.output, 500)}"
    if isinstance(event, Notice) and event.level != "info" and _speaks_of_wall(event.message):
        return f"About the wall: {event.message}"
    if isinstance(event, ToolResult) and event.sandbox:
        call = _last(events, place, ToolCall, lambda item: item.call_id == event.call_id)
        what = _call_words(call) if call is not None else "The last command"
        if event.sandbox == "none":
            return f"{what} ran **without a wall**; /sandbox tells why."
        return f"{what} ran inside the wall **{event.sandbox}**; /sandbox tells what that holds back."
    return ""


def _speaks_of_wall(message: str) -> bool:
    return any(word in message.lower() for word in _WALL_WORDS)


def _retry(events: Sequence[Event], place: int) -> str:
    event = events[place]
    if not isinstance(event, Retry):
        return ""
    wait = f"after {event.delay_s:.1f} s" if event.delay_s else "at once"
    void = " What was shown of that answer is void." if event.discard else ""
    failed = f"Attempt {event.attempt} failed ({event.error_kind}): {event.message}"
    return f"{failed}\n- It was asked again {wait}.{void}"


def _fallback(events: Sequence[Event], place: int) -> str:
    event = events[place]
    if not isinstance(event, ModelSwitch):
        return ""
    return f"**{event.to_model}** took over from {event.from_model}: {event.reason}"


def _compaction(events: Sequence[Event], place: int) -> str:
    event = events[place]
    if not isinstance(event, Compaction):
        return ""
    triggers = {"auto": "the window was nearly full", "overflow": "the model said that it was too long",
                "manual": "you asked for it", "command": "you asked for it"}  # fmt: skip
    why = triggers.get(event.trigger, event.trigger)
    return (
        f"The conversation was compacted because {why}: {event.tokens_before:,} tokens became "
        f"{event.tokens_after:,}. What came before event {event.first_kept_seq} is a summary for the model; "
        f"the session file keeps every word.\n\n{event.summary}"
    )


def _mode(events: Sequence[Event], place: int) -> str:
    event = events[place]
    if not isinstance(event, Setting) or event.key not in ("mode", "model", "reasoning"):
        return ""
    return f"The {event.key} was changed from {event.from_ or 'its default'} to **{event.to}** by {event.by}."


def _stop(events: Sequence[Event], place: int) -> str:
    event = events[place]
    if not isinstance(event, StateEvent) or event.stop_reason is None or event.stop_reason == "end_turn":
        return ""
    error = _last(events, place, ErrorEvent, lambda item: item.run_id == event.run_id)
    why = f": {error.message}" if error is not None and event.stop_reason == "error" else ""
    detail = f" ({event.detail})" if event.detail and not why else ""
    return f"The run ended with **{event.stop_reason}**{why}{detail}"


def _last(events: Sequence[Event], place: int, kind: type[Any], test: Callable[[Any], bool]) -> Any:
    for event in reversed(events[: place + 1]):
        if isinstance(event, kind) and test(event):
            return event
    return None


_EXPLAIN: dict[str, Callable[[Sequence[Event], int], str]] = {
    "permission": _permission,
    "wall": _wall,
    "retry": _retry,
    "fallback": _fallback,
    "compaction": _compaction,
    "mode": _mode,
    "stop": _stop,
}


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("why", "Explain the last decision: permission, wall, retry, fallback, compaction.", _why,
                usage=f"[{' | '.join(KINDS)}]", group="safety",
                complete=lambda context, text: starting_with(KINDS, text)),
    ]  # fmt: skip
