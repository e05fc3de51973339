"""Prompts of all sessions, for recall, and the draft that was being typed.

``<data>/prompt_history.jsonl`` has a line for each prompt: ``{"ts", "project", "text"}``. Drafts lie in
``<data>/drafts/<project-key>/<owner>.json``, one for each running screen, so that two do not overwrite each
other. All are for the owner only (0600).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from aar.config.files import write_atomic
from aar.config.paths import ensure, project_key
from aar.memory.append import append_line
from aar.memory.file_lock import try_lock

MAX_ENTRIES = 5000
"""Prompts that are offered for recall."""
MAX_BYTES = 20_000_000
"""The file is cut to its newer half when it is larger."""
_MAX_TEXT = 200_000


class PromptHistory:
    """Earlier prompts of all sessions.

    Args:
        file: Where they are kept; made with the first prompt.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def add(self, text: str, project: Path) -> None:
        """Keep a prompt. One of more than 200,000 characters is kept up to there.

        Raises:
            OSError: It cannot be written.
            StorageError: The folder cannot be made.
        """
        entry = {"ts": round(time.time(), 3), "project": project_key(project), "text": text[:_MAX_TEXT]}
        ensure(self.file.parent)
        self._cut()
        append_line(self.file, json.dumps(entry).encode("ascii") + b"\n")

    def entries(self, project: Path | None = None) -> list[str]:
        """Return prompts, oldest first, each once at its newest place; of one project or of all.

        Lines that cannot be read are skipped.
        """
        key = None if project is None else project_key(project)
        newest: dict[str, None] = {}
        for entry in reversed(self._lines()):
            text = entry.get("text")
            if isinstance(text, str) and text and (key is None or entry.get("project") == key):
                newest.setdefault(text)
                if len(newest) >= MAX_ENTRIES:
                    break
        return list(reversed(newest))

    def _lines(self) -> list[Mapping[str, Any]]:
        try:
            lines = self.file.read_bytes().splitlines()
        except OSError:
            return []
        return [entry for entry in map(_parsed, lines) if entry is not None]

    def _cut(self) -> None:
        """Drop the older half of a file that has grown too large."""
        try:
            if self.file.stat().st_size <= MAX_BYTES:
                return
        except OSError:
            return
        data = self.file.read_bytes()
        kept = data[data.find(b"\n", len(data) // 2) + 1 :]
        write_atomic(self.file, kept, durable=False)


class DraftStore:
    """What was being typed when a screen ended, also when it crashed.

    Args:
        folder: Where drafts of all projects are kept.
        project: Root of the project.

    A draft belongs to the screen that holds the lock of its file. One whose screen is gone is taken over by
    the next screen of that project. Threads may save; what comes after `close` changes nothing.
    """

    def __init__(self, folder: Path, project: Path) -> None:
        self._folder = folder / project_key(project)
        self._file = self._folder / f"{os.getpid()}-{time.time_ns()}.json"
        self._lock: int | None = None
        self._guard = threading.Lock()
        self._given_up = False

    def take(self) -> Mapping[str, Any] | None:
        """Return the newest draft that no running screen holds, and make it this one's.

        Older ones are removed with it only when they are empty or unreadable, so that no text is lost.
        """
        try:
            files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        except OSError:
            return None
        for file in files:
            if file == self._file:
                continue
            lock = _try_open_locked(file.with_suffix(".lock"))
            if lock is None:
                continue
            try:
                draft = _read(file)
                _remove(file)
                _remove(file.with_suffix(".lock"))
            finally:
                os.close(lock)
            if draft is not None:
                return draft
        return None

    def save(self, draft: Mapping[str, Any]) -> None:
        """Keep ``draft`` in place of the last one.

        Raises:
            OSError: It cannot be written.
            StorageError: The folder cannot be made.
        """
        with self._guard:
            if self._given_up:
                return
            ensure(self._folder)
            if self._lock is None:
                self._lock = _try_open_locked(self._file.with_suffix(".lock"))
            write_atomic(self._file, json.dumps(draft).encode("ascii"), durable=False)

    def clear(self) -> None:
        """Forget the draft: it was sent."""
        with self._guard:
            if not self._given_up:
                _remove(self._file)

    def close(self) -> None:
        """Give the draft up; the next screen may take it."""
        with self._guard:
            self._given_up = True
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
                _remove(self._file.with_suffix(".lock"))


def _try_open_locked(file: Path) -> int | None:
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    if try_lock(fd):
        return fd
    os.close(fd)
    return None


def _read(file: Path) -> Mapping[str, Any] | None:
    try:
        return _parsed(file.read_bytes())
    except OSError:
        return None


def _parsed(data: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
