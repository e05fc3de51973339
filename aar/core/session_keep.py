"""Keeps what a long session is folded to beside its file: at its end, when it is shortened, now and then."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aar.core.session_folds import UNFOLDED, SessionFolds
from aar.memory.event_lines import Place, Problem
from aar.memory.fold_cache import FoldCache
from aar.memory.session_store import EventFile
from aar.protocol.errors import StorageError
from aar.protocol.events import Event

if TYPE_CHECKING:
    from aar.core.session import Session


class FoldKeeper:
    """Keeps the folds of one session, and takes them up again.

    Args:
        session: Whose folds.
        folds: They go as far as the file.
        file: Its file.

    Attributes:
        place: The end of the file in lines, as far as it was read and written here.
    """

    def __init__(self, session: Session, folds: SessionFolds, file: EventFile) -> None:
        self.place = Place()
        self._session, self._folds, self._file = session, folds, file
        self._cache = FoldCache(file.folder) if file.folder is not None else None
        self._meanwhile: asyncio.Task[None] | None = None
        self._shortened = False

    def take(self) -> None:
        """Make the session what it was when it was kept; where that cannot be read, leave all as it is."""
        kept = None if self._cache is None else self._cache.load()
        if kept is None:
            return
        session, facts = self._session, kept.facts
        try:
            problems = [Problem(int(line), str(message)) for line, message in facts["problems"]]
            own = int(facts["last_seq"]), str(facts["last_id"]), str(facts["trace_id"])
            self._folds.take(facts["folds"], kept.turns, kept.place)
        except (ValueError, KeyError, TypeError):
            return
        session.problems[:] = problems
        session.last_seq, session.last_id, session.trace_id = own
        self.place = replace(kept.place)

    def note_written(self, events: Sequence[Event]) -> None:
        """Move the place behind ``events``, which were written."""
        self.place.line += len(events)
        for event in events:
            if event.type not in UNFOLDED:
                self.place.last_id = event.id
            # The conversation is short then: to keep it costs little, and saves the most.
            self._shortened |= event.type == "compaction"

    def keep_meanwhile(self) -> None:
        """Keep it in a thread if it has grown or was shortened, for the case that this process is killed."""
        if self._cache is None or self._meanwhile is not None or not self._folds.at_hand:
            return
        size = self._file.whole_size or 0
        if self._cache.due(size) or (self._shortened and self._cache.worth(size)):
            self._shortened = False
            self._meanwhile = asyncio.create_task(asyncio.to_thread(self._keeping(self._cache, size)))
            self._meanwhile.add_done_callback(self._kept)

    def _kept(self, _task: object) -> None:
        self._meanwhile = None

    def close(self) -> None:
        """Keep a long session as it is now, and write nothing any more."""
        if self._cache is None:
            return
        size = self._file.whole_size or 0
        if self._cache.worth(size):
            self._keeping(self._cache, size)()
        self._cache.close()

    def _keeping(self, cache: FoldCache, size: int) -> Callable[[], None]:
        """Return what keeps the session as it is now, with a file of ``size`` bytes, in any thread."""
        session = self._session
        self.place.offset = size
        place = replace(self.place)
        # A cache must not be in the way of anything: what cannot be kept is folded again.
        try:
            facts = {
                "last_seq": session.last_seq,
                "last_id": session.last_id,
                "trace_id": session.trace_id,
                "problems": [(problem.line, problem.message) for problem in session.problems],
                "folds": self._folds.facts(),
            }
            # As text: the folds go on changing while this is kept.
            told, dump = json.dumps(facts), self._folds.dumping()
        except (StorageError, ValueError, TypeError):
            return lambda: None

        def keep() -> None:
            with contextlib.suppress(ValueError, TypeError):
                cache.save(place, json.loads(told), dump())

        return keep
