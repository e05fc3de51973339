"""Evaluated system prompts on disk, so that a worker that just started need not read them again.

Two files each, in a private folder: ``NAME.bin`` is llama.cpp's saved slot (about 29 KB a token for the
default model), ``NAME.json`` its tokens. Only the newest few are kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KEPT = 6
"""Prefixes on disk, about 15 MB each."""


@dataclass(frozen=True, slots=True)
class SavedPrefix:
    """A saved slot: its file name, and how many tokens it begins with of those asked for."""

    file: str
    shared: int


class PrefixStore:
    """Prefixes of one model with one set of settings.

    Args:
        folder: Where the files lie.
        key: Changes with all that makes a saved slot unreadable or wrong: weights, versions, settings.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key

    def best(self, tokens: Sequence[int]) -> SavedPrefix | None:
        """Return the prefix that shares the most with ``tokens``; ``None`` when less than half fits."""
        found = [
            SavedPrefix(f"{path.stem}.bin", _shared(saved, tokens))
            for path, saved in self._entries()
            if path.with_suffix(".bin").is_file()
        ]
        best = max(found, key=lambda entry: entry.shared, default=None)
        if best is None or best.shared < len(tokens) // 2:
            return None
        with suppress(OSError):
            os.utime((self._folder / best.file).with_suffix(".json"))
        return best

    def keep(self, tokens: Sequence[int], save: Callable[[str], bool]) -> None:
        """Have ``save(file_name)`` write the slot. Not being able to is no error: it is only a cache."""
        digest = hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()[:16]
        name = f"{self._key}-{digest}"
        temporary = f".{name}.{os.getpid()}"
        try:
            if save(temporary):
                (self._folder / temporary).replace(self._folder / f"{name}.bin")
                (self._folder / f"{name}.json").write_text(json.dumps(list(tokens)), encoding="utf-8")
        except OSError:
            pass
        finally:
            with suppress(OSError):
                (self._folder / temporary).unlink(missing_ok=True)
        self._prune()

    def drop(self, prefix: SavedPrefix) -> None:
        """Forget a prefix that could not be read."""
        path = self._folder / prefix.file
        for file in (path, path.with_suffix(".json")):
            with suppress(OSError):
                file.unlink()

    def _entries(self) -> Iterator[tuple[Path, list[int]]]:
        for path in self._folder.glob(f"{self._key}-*.json"):
            with suppress(OSError, ValueError):
                yield path, json.loads(path.read_text(encoding="utf-8"))

    def _prune(self) -> None:
        with suppress(OSError):
            files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
            for path in files[:-KEPT]:
                self.drop(SavedPrefix(f"{path.stem}.bin", 0))


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return min(len(left), len(right))
