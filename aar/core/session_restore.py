"""Bringing a session back: what another process left open, what was damaged, copies."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aar.memory.event_lines import Problem
from aar.memory.session_store import EventFile
from aar.memory.stream_journal import LeftOver, remove_left_over, take_left_over
from aar.protocol.errors import ToolCategory, tool_error_text
from aar.protocol.events import AssistantMessage, Event, Notice, Reasoning, StateEvent, ToolCall, ToolResult
from aar.protocol.state import AgentState, StopReason, is_working

if TYPE_CHECKING:
    from aar.core.session import Session

_COPY_BATCH = 500
_SHOWN_PROBLEMS = 5


def settle(session: Session, folder: Path | None) -> None:
    """Close what the end of another process left open: half an answer, calls, states."""
    left = take_left_over(folder) if folder is not None else None
    if left is not None and not session.totals.answered("main", left.run_id, left.step):
        session.append(*_partial_answer(left))
    for agent_id in session.totals.agents_with_open_calls():
        session.close_open_calls(agent_id=agent_id)
    for agent_id, state in list(session.totals.states.items()):
        if is_working(state):
            ended = StateEvent(
                agent_id=agent_id,
                state=AgentState.CANCELLED,
                stop_reason=StopReason.CANCELLED,
                detail="The session ended in the middle of a run.",
            )
            session.append(ended)
    if folder is not None and not session.degraded:
        remove_left_over(folder)


def cut_off(call: ToolCall, category: ToolCategory, message: str) -> ToolResult:
    """Return the failed result of a call that will have no other."""
    return ToolResult(
        agent_id=call.agent_id,
        run_id=call.run_id,
        step=call.step,
        parent_id=call.id or None,
        call_id=call.call_id,
        tool_name=call.tool_name,
        output=tool_error_text(category, message),
        is_error=True,
        category=category,
    )


def _partial_answer(left: LeftOver) -> list[Event]:
    events: list[Event] = []
    if left.reasoning:
        events.append(Reasoning(content=left.reasoning, run_id=left.run_id, step=left.step))
    if left.text:
        text = AssistantMessage(content=left.text, partial=True, run_id=left.run_id, step=left.step)
        events.append(text)
    return events


def problems_notice(problems: Sequence[Problem]) -> Notice:
    """Return the notice that tells what was wrong with a session file."""
    shown = " ".join(problem.message for problem in problems[:_SHOWN_PROBLEMS])
    more = f" And {len(problems) - _SHOWN_PROBLEMS} more." if len(problems) > _SHOWN_PROBLEMS else ""
    message = f"The session file was damaged; all that can be read of it is here. {shown}{more}"
    return Notice(level="warning", code="session_repaired", message=message)


def copy_events(
    events: Iterator[Event], seq: int | None, session: Session, file: EventFile
) -> Iterator[Event]:
    """Write ``events`` up to ``seq`` into ``file`` as events of ``session``, in batches, and yield them."""
    update = {"session_id": session.session_id, "trace_id": session.trace_id}
    batch: list[Event] = []
    for event in events:
        if seq is not None and (event.seq or 0) > seq:
            continue
        batch.append(event.model_copy(update=update))
        if len(batch) == _COPY_BATCH:
            file.append([copy.to_json() for copy in batch])
            yield from batch
            batch = []
    if batch:
        file.append([copy.to_json() for copy in batch])
        yield from batch


@contextlib.contextmanager
def no_collection() -> Generator[None]:
    """Hold the garbage collector back while many objects are made that all stay.

    Afterwards it leaves out all that there is, until a session is closed: to look through a long history
    takes a tenth of a second, each time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
