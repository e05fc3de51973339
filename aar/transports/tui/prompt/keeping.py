"""What is typed, kept on disk: earlier prompts, and the draft that was not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from textual.timer import Timer

if TYPE_CHECKING:
    from pathlib import Path

    from textual.app import App

    from aar.memory.prompt_history import DraftStore, PromptHistory
    from aar.runtime.parts import Runtime

_DRAFT_S = 1.0
"""Seconds between two writes of the draft."""


class Keeper:
    """Keeps prompts and the draft; nothing until `open`, nor where sessions are not stored.

    Args:
        app: The screen.
        draft: Returns the draft as it is now; empty: there is none.
        tell: Shows the user a sentence.
    """

    def __init__(
        self, app: App[int], draft: Callable[[], dict[str, Any]], tell: Callable[[str], None]
    ) -> None:
        self._app = app
        self._draft = draft
        self._tell = tell
        self._history: PromptHistory | None = None
        self._drafts: DraftStore | None = None
        self._workspace: Path | None = None
        self._timer: Timer | None = None

    async def open(self, runtime: Runtime) -> Sequence[str]:
        """Return the earlier prompts of the project."""
        if not runtime.config.session.store:
            return ()
        from aar.memory.prompt_history import DraftStore, PromptHistory

        data, self._workspace = runtime.base.paths.data, runtime.workspace
        self._history = PromptHistory(data / "prompt_history.jsonl")
        self._drafts = DraftStore(data / "drafts", runtime.workspace)
        return await asyncio.to_thread(self._history.entries, runtime.workspace)

    async def left(self) -> Mapping[str, Any] | None:
        """Return the draft that another screen left behind, and make it this one's."""
        return None if self._drafts is None else await asyncio.to_thread(self._drafts.take)

    async def entries(self) -> Sequence[str]:
        """Return the prompts of all projects."""
        return () if self._history is None else await asyncio.to_thread(self._history.entries)

    def remember(self, typed: str) -> None:
        """Keep a prompt in the history, and forget the draft."""
        if self._drafts is not None:
            self._drafts.clear()
        history, workspace = self._history, self._workspace
        if history is not None and workspace is not None and typed.strip():
            self._in_thread(lambda: history.add(typed, workspace))

    def draft_changed(self) -> None:
        """Write the draft soon, at most once a second."""
        if self._drafts is not None and self._timer is None:
            self._timer = self._app.set_timer(_DRAFT_S, self._due)

    def _due(self) -> None:
        self._timer = None
        drafts, draft = self._drafts, self._draft()
        if drafts is not None:
            self._in_thread((lambda: drafts.save(draft)) if draft else drafts.clear)

    def _in_thread(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            from aar.protocol.errors import AarError

            try:
                await asyncio.to_thread(work)
            except (OSError, AarError) as error:
                self._tell(f"What you type cannot be kept on disk: {error}")

        self._app.run_worker(run(), exit_on_error=False)

    def close(self, draft: dict[str, Any]) -> None:
        """Keep ``draft`` for the next start; the screen ends."""
        drafts = self._drafts
        if drafts is None:
            return
        from aar.protocol.errors import AarError

        try:
            if draft:
                drafts.save(draft)
            else:
                drafts.clear()
        except (OSError, AarError) as error:
            from aar.runtime.base import log_failure

            log_failure("the draft could not be kept", error)
        drafts.close()
