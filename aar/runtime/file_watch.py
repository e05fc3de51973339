"""What somebody else changed while the agent did not work: told at the next prompt.

Nothing watches. When a run ends, the files that the model knows are noted by size, time and digest (and by
a checksum of each line); at the next prompt they are looked at again. A session that goes on in another
process finds the note in its folder. Of contents, nothing is kept.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import ref
from zlib import crc32

from aar.config.files import write_atomic
from aar.protocol.errors import StorageError, ToolFailure
from aar.protocol.events import ContextEvent, Event, Rewind, ToolResult
from aar.protocol.messages import TextBlock
from aar.protocol.state import StopReason
from aar.safety.files import WorkspaceFiles
from aar.safety.sanitize import sanitize

if TYPE_CHECKING:
    from aar.core.agent import Agent
    from aar.core.session import Session

SOURCE: Final = "file_change"
LABEL: Final = "changed between turns"
_NOTE: Final = "known_files.json"
_MOST_FILES: Final = 500
_NAMED: Final = 20
_NAME_CHARS: Final = 300
_LARGEST_WITH_LINES: Final = 512 * 1024
_LARGEST_READ: Final = 8 * 1024 * 1024
_LARGEST_NOTE: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """A file at one moment.

    Attributes:
        size: Bytes.
        mtime_ns: Time of its last change.
        digest: SHA-256; empty: it is too large to be read for this.
        lines: CRC-32 of each line; ``None``: too large, or no text.
    """

    size: int
    mtime_ns: int
    digest: str
    lines: Sequence[int] | None


class FileWatch:
    """Notes what the model of one agent knows, and tells what is different at the next prompt.

    Args:
        agent: The user's agent.
        session: Its session.
        files: The files as its tools reach them.
    """

    def __init__(self, agent: Agent, session: Session, files: WorkspaceFiles) -> None:
        self._agent, self._session, self._files = agent, session, files
        self._kept: dict[Path, Look] | None = None
        self._told_run: str | None = None
        self._of_agents: set[str] = set()
        # Not a strong one: a session lives longer than its agent, which is made anew for another model.
        myself = ref(self)

        def heard(event: Event) -> None:
            watch = myself()
            if watch is not None:
                watch._heard(event)

        session.on_event(heard)

    def _heard(self, event: Event) -> None:
        if isinstance(event, Rewind) or (isinstance(event, ContextEvent) and event.label == "undo"):
            # aar itself wrote files then, and has told so where it matters.
            self._kept = {}
        elif isinstance(event, ToolResult) and event.file_changes and self._agent.record is None:
            # An agent in the background; its report names what it changed.
            self._of_agents.update(change.path for change in event.file_changes)

    async def tell(self, prompt: str) -> Sequence[Event]:
        """Return what changed since the last run ended; an `aar.core.agent.Counsel`."""
        record = self._agent.record
        if record is None or record.run_id == self._told_run:
            return ()  # a later turn of the same run: what changed is the agent's own work
        self._told_run = record.run_id
        if self._kept is None:
            self._kept = await asyncio.to_thread(self._stored)
        if not self._kept:
            return ()
        changes = await asyncio.to_thread(self._changes, self._kept)
        return [_event(changes)] if changes else ()

    async def keep(self) -> None:
        """Note the files that the model knows, as they are at the end of a run."""
        record = self._agent.record
        if record is None or record.run_id != self._told_run:
            return  # what changed before this run was not told yet
        known = self._files.known
        if known or record.changes or self._kept:
            paths = [*map(self._files.resolve, record.changes), *known]
            await asyncio.to_thread(self._note, paths)

    # --- in a thread -------------------------------------------------------------------------------------

    def _changes(self, kept: dict[Path, Look]) -> list[str]:
        """Return a line for each file that is different, and note it as it is now."""
        told: list[str] = []
        known = self._files.known
        of_agents = {self._files.resolve(name) for name in self._of_agents}
        self._of_agents.clear()
        for path, before in list(kept.items()):
            now = _look(self._files, path, before)
            if now is before:
                continue
            if now is None:
                del kept[path]
            else:
                kept[path] = now
            stamp = known.get(path)
            model_has_it = now is not None and stamp is not None and stamp.sha256 == now.digest
            same = now is not None and now.digest == before.digest != ""
            if path in of_agents or model_has_it or same:
                continue
            name = sanitize(self._files.display(path), keep_newlines=False)[:_NAME_CHARS]
            told.append(f"{name}: {'deleted' if now is None else _difference(before, now)}")
        return told

    def _note(self, paths: Iterable[Path]) -> None:
        kept = self._kept or {}
        # The newest last, so that the oldest go where there are too many.
        wanted = dict.fromkeys([*kept, *paths])
        chosen = list(wanted)[-_MOST_FILES:]
        looks = {path: _look(self._files, path, kept.get(path)) for path in chosen}
        now = {path: look for path, look in looks.items() if look is not None}
        if now == self._kept:
            return
        self._kept = now
        folder = self._session.folder
        if folder is None:
            return
        document = {
            "last_seq": self._session.last_seq,
            "files": {str(path): _as_json(look) for path, look in now.items()},
        }
        with suppress(OSError, UnicodeEncodeError):  # a help, without which the next run goes on
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(folder / _NOTE, json.dumps(document).encode(), durable=False)

    def _stored(self) -> dict[Path, Look]:
        """Return what an earlier process noted; nothing, where files were taken back since."""
        folder = self._session.folder
        try:
            if folder is None or (folder / _NOTE).stat().st_size > _LARGEST_NOTE:
                return {}
            document = cast("dict[str, Any]", json.loads((folder / _NOTE).read_bytes()))
            later = self._session.events(int(document["last_seq"]) + 1)
            if any(isinstance(event, Rewind) for event in later):
                return {}
            noted = cast("Mapping[str, Any]", document["files"])
            return {Path(path): _from_json(value) for path, value in islice(noted.items(), _MOST_FILES)}
        except (OSError, StorageError, ValueError, TypeError, LookupError, AttributeError):
            return {}


def attach_file_watch(agent: Agent, session: Session) -> None:
    """Let ``agent`` be told at each prompt what others changed since its last run."""
    if not isinstance(agent.files, WorkspaceFiles):
        return
    watch = FileWatch(agent, session, agent.files)
    ended: Callable[[StopReason], Any] | None = agent.before_end

    async def end(reason: StopReason) -> None:
        if ended is not None:
            await ended(reason)
        await watch.keep()

    agent.counsel.insert(0, watch.tell)
    agent.before_end = end


def _look(files: WorkspaceFiles, path: Path, before: Look | None) -> Look | None:
    """Return ``path`` as it is on disk; ``before`` itself where it seems unchanged; ``None``: it is gone."""
    try:
        info = os.lstat(path)
        if before is not None and (info.st_size, info.st_mtime_ns) == (before.size, before.mtime_ns):
            return before
        if info.st_size > _LARGEST_READ:
            return Look(info.st_size, info.st_mtime_ns, "", None)
        # Not what an editor has unsaved: asking it for each file would cost more than it tells.
        with WorkspaceFiles.open_binary(files, str(path)) as file:
            data = file.read(_LARGEST_READ)
    except (OSError, ToolFailure):
        return None
    text = len(data) <= _LARGEST_WITH_LINES and b"\0" not in data
    lines = array("I", map(crc32, data.splitlines())) if text else None
    return Look(info.st_size, info.st_mtime_ns, hashlib.sha256(data).hexdigest(), lines)


def _difference(before: Look, now: Look) -> str:
    if before.lines is None or now.lines is None:
        return f"changed ({before.size:,} to {now.size:,} bytes)"
    old, new = Counter(before.lines), Counter(now.lines)
    added, removed = (new - old).total(), (old - new).total()
    return f"+{added} -{removed} lines" if added or removed else "lines moved, or only their ends changed"


def _event(changes: Sequence[str]) -> Event:
    more = [f"and {len(changes) - _NAMED} more files"] if len(changes) > _NAMED else []
    lines = "\n".join(f"- {line}" for line in [*changes[:_NAMED], *more])
    text = (
        "Since your last turn the user or another program changed files that you know. Keep these changes; "
        f"read a file again before you rely on it:\n{lines}"
    )
    return ContextEvent(source=SOURCE, label=LABEL, content=(TextBlock(text=text),))


def _as_json(look: Look) -> list[Any]:
    lines = None if look.lines is None else base64.b64encode(array("I", look.lines).tobytes()).decode()
    return [look.size, look.mtime_ns, look.digest, lines]


def _from_json(value: Any) -> Look:
    size, mtime_ns, digest, lines = value
    found = None if lines is None else array("I", base64.b64decode(lines))
    return Look(int(size), int(mtime_ns), str(digest), found)
