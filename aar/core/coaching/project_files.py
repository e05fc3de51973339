"""The files that matter for a task, for models that cannot go and look (dialect ``files``).

A small model gets the project's file list and, within a budget, the content of the files that are named
in the prompt, stand in a failing check's output, hold the prompt's identifiers, or belong to such files
by import or as their tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from aar.core.tokens import estimate_text
from aar.protocol.errors import ToolFailure
from aar.providers.dialects.files_text import language_of, render_file

_MAX_LISTED = 80
_MAX_SCANNED = 2000
_MAX_FILE_BYTES = 200_000
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_COMMON_WORDS = """
the and for with that this from not are was have has add all any but can def class return import self none
true false int str list dict test tests file files line lines function method value values error fix bug make
use new set get should must when then into its each one two only also does write change rename called call
name code print assert assertionerror failed passed python pytest exit py
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_DEFINITION = re.compile(
    r"^\s*(?:export\s+)?(?:async\s+)?(?:pub\s+)?(?:def|class|function|fn|func|const|let|var|struct|enum|type|interface)\s+(\w+)",
    re.MULTILINE,
)
_SKIPPED_NAMES = frozenset(
    {"package-lock.json", "yarn.lock", "poetry.lock", "uv.lock", "Cargo.lock", "LICENSE"}
)


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A text file of the project: ``path`` is relative, with forward slashes."""

    path: str
    text: str

    @property
    def tokens(self) -> int:
        """About how many tokens it costs to show the file."""
        return estimate_text(self.text) + 12


class Peek(Protocol):
    """File access that can look at a file without counting as the model's reading."""

    def peek_bytes(self, path: str) -> bytes:
        """Return a regular file's content."""
        ...


class ProjectFiles:
    """The project as a small model is shown it.

    Args:
        files: Reads them, within policy.
    """

    def __init__(self, files: Peek) -> None:
        self._files = files
        self._shown: dict[str, str] = {}
        self._all_shown = False
        self.paths: list[str] = []

    def refresh(self, paths: Sequence[str]) -> None:
        """Take the paths of the project that are not ignored: relative, with forward slashes."""
        self.paths = sorted(set(paths), key=lambda path: (path.count("/"), path))

    def is_shown(self, path: str) -> bool:
        """Tell whether the model was shown ``path`` as it is now."""
        return path in self._shown and self._shown[path] == self.content(path)

    @property
    def shown_tokens(self) -> int:
        """About how many tokens the files are that the model was shown."""
        return sum(estimate_text(text) for text in self._shown.values())

    @property
    def all_shown(self) -> bool:
        """Whether every source file of the project that is not empty was shown."""
        return self._all_shown

    def known_paths(self) -> frozenset[str]:
        """All paths of the project."""
        return frozenset(self.paths)

    def content(self, path: str) -> str | None:
        """Return the present text of ``path``, or ``None`` when it is no readable text file."""
        try:
            data = self._files.peek_bytes(path)
            return None if b"\0" in data[:4096] else data.decode("utf-8", "replace")
        except (ToolFailure, OSError):
            return None

    def select(self, prompt: str, failure: str, budget: int) -> list[ProjectFile]:
        """Return the files that matter for ``prompt``, most important first, within ``budget`` tokens.

        Args:
            prompt: What the user wants.
            failure: Output of the failing check, or empty.
            budget: Estimated tokens of all contents together.
        """
        loaded = self._load()
        scored = score(loaded, prompt, failure)
        chosen: list[ProjectFile] = []
        for file in scored:
            if file.tokens <= budget:
                chosen.append(file)
                budget -= file.tokens
        taken = {file.path for file in chosen}
        self._all_shown = all(f.path in taken or not f.text.strip() or not _is_source(f) for f in loaded)
        return chosen

    def _load(self) -> list[ProjectFile]:
        loaded: list[ProjectFile] = []
        for path in self.paths[:_MAX_SCANNED]:
            if PurePosixPath(path).name in _SKIPPED_NAMES:
                continue
            text = self.content(path)
            if text is not None and len(text) <= _MAX_FILE_BYTES:
                loaded.append(ProjectFile(path, text))
        return loaded

    def describe(self, prompt: str, failure: str, budget: int, *, again: bool = False) -> str:
        """Return the project for the model: the file list, then the files that matter in full.

        A file that was shown before and did not change is not shown again, unless ``again`` is set.
        """
        chosen = [
            file
            for file in self.select(prompt, failure, budget)
            if again or self._shown.get(file.path) != file.text
        ]
        for file in chosen:
            self._shown[file.path] = file.text
        parts = [self.listing()]
        ordered = sorted(chosen, key=lambda file: file.path)
        parts += [show_file(file.path, file.text) for file in ordered]
        return "\n\n".join(parts)

    def listing(self) -> str:
        """Return the names of the project's files, those near its root first."""
        more = len(self.paths) - _MAX_LISTED
        listed = self.paths[:_MAX_LISTED] + ([f"… and {more} more"] if more > 0 else [])
        return "\n".join(["Files of the project:", *(listed or ["(none yet)"])])


def show_file(path: str, text: str) -> str:
    """Return a file as a path line and a fenced block, the form in which the model answers too."""
    return render_file(path, text if text.endswith("\n") or not text else text + "\n")


def score(files: Sequence[ProjectFile], prompt: str, failure: str) -> list[ProjectFile]:
    """Return ``files`` that may matter, the most important first."""
    words = _identifiers(prompt) | _identifiers(failure)
    base = {file.path: _own_score(file, prompt, failure, words) for file in files}
    leaders = [file for file in files if base[file.path] >= 30]
    total = dict(base)
    for file in files:
        if any(_related(file, leader) for leader in leaders if leader is not file):
            total[file.path] += 25
        if not file.text.strip() or PurePosixPath(file.path).name.startswith("."):
            total[file.path] -= 40
    order = sorted(files, key=lambda file: (-total[file.path], file.path.count("/"), len(file.text)))
    return [file for file in order if total[file.path] > 0 or (file.text.strip() and _is_source(file))]


def _identifiers(text: str) -> set[str]:
    return {word for word in _WORD.findall(text) if word.lower() not in _COMMON}


def _own_score(file: ProjectFile, prompt: str, failure: str, words: Iterable[str]) -> int:
    path = PurePosixPath(file.path)
    points = 0
    if _names(prompt, file.path):
        points += 120
    elif path.suffix and _names(prompt, path.name):
        points += 100
    elif re.search(rf"\b{re.escape(path.stem)}\b", prompt) and len(path.stem) > 2:
        points += 40
    if _names(failure, file.path) or (path.suffix and _names(failure, path.name)):
        points += 60
    defined = set(_DEFINITION.findall(file.text))
    for word in words:
        if word in defined:
            points += 30
        elif re.search(rf"\b{re.escape(word)}\b", file.text):
            points += 4
    return points


def _names(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w-])", text) is not None


def _related(file: ProjectFile, leader: ProjectFile) -> bool:
    """Tell whether one imports the other, or is its test."""
    mine, its = PurePosixPath(file.path).stem, PurePosixPath(leader.path).stem
    if mine in (f"test_{its}", f"{its}_test", f"{its}.test", f"{its}.spec"):
        return True
    return _imports(leader.text, mine) or _imports(file.text, its)


def _imports(text: str, stem: str) -> bool:
    if len(stem) < 2 or stem == "__init__":
        return False
    name = re.escape(stem)
    pattern = rf"^\s*(?:from|import|use|require|#include|.*\bfrom\s|.*\brequire\()[^\n]*\b{name}\b"
    return re.search(pattern, text, re.MULTILINE) is not None


def _is_source(file: ProjectFile) -> bool:
    return bool(language_of(file.path))
