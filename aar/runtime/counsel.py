"""What stands beside a prompt and an answer: notes that fit, advisors, a critic. Nothing unless it is set.

The parts are imported when they are first needed: most runs need none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aar.protocol.events import Event, ToolCall

if TYPE_CHECKING:
    from aar.core.agent import Agent
    from aar.core.session import Session
    from aar.protocol.notes import NoteKeeper
    from aar.runtime.notes import SessionNotes
    from aar.runtime.parts import Runtime


def attach_counsel(runtime: Runtime, session: Session, agent: Agent) -> None:
    """Let what the settings want stand beside the prompts and answers of the user's agent."""
    memory = runtime.config.memory
    if memory.enabled and memory.recall:
        agent.counsel.append(_Recall(runtime, session))


class _Recall:
    """Puts the notes that fit before the model; an `aar.core.agent.Counsel`."""

    def __init__(self, runtime: Runtime, session: Session) -> None:
        self._runtime, self._session = runtime, session
        self._notes: SessionNotes | None = None

    async def __call__(self, prompt: str) -> Sequence[Event]:
        base = self._runtime.base
        folders = (base.paths.data / "memory", base.workspace / ".aar/memory")
        if not any(folder.is_dir() for folder in folders):
            return ()
        if self._notes is None:
            from aar.runtime.notes import SessionNotes

            self._notes = SessionNotes(self._runtime, self._session)
        return await self._notes.recall(prompt)


def notes_for(
    runtime: Runtime, session: Session, call: ToolCall, outside: Callable[[], bool]
) -> NoteKeeper | None:
    """Return the notes as a call reaches them; ``None`` where it is no call for notes.

    Args:
        runtime: All parts.
        session: Of the call.
        call: The call.
        outside: Tells whether text of strangers is in the run.
    """
    if not runtime.config.memory.enabled or "memory" not in call.tool_name.lower():
        return None
    from aar.runtime.notes import CallNotes

    return CallNotes(runtime, session, call, outside)
