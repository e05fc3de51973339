"""What the prompt can complete: commands after ``/``, files and folders after ``@``. Pure, no widgets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aar.protocol.late import late_pattern

MAX_SHOWN = 50
"""Suggestions that are ranked and offered at once."""
_MOST_SCORED = 3000
_MENTION = late_pattern(r"(?<![\w@/.])@(?P<path>\"[^\"\n]*|[^\s@,;:!?'\"()<>]*)$")
_COMMAND = late_pattern(r"\A/(?P<name>[^\s/]*)\Z")
_ARGUMENT = late_pattern(r"\A/\S+[ ]+.*\Z")
_PLAIN = late_pattern(r"[^\s@,;:!?'\"()<>]+\Z")
_MENTIONABLE = late_pattern(r"[^\"\x00-\x1f\x7f]+\Z")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One thing to choose.

    Attributes:
        insert: Put in place of what was typed.
        label: Shown.
        detail: Shown dimmed behind it.
    """

    insert: str
    label: str = ""
    detail: str = ""


CompleteCommand = Callable[[str], Sequence[Suggestion]]
"""Given all of the text of a line that begins with ``/``, returns what may take its place."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is being typed at the caret.

    Attributes:
        kind: ``file`` after ``@``, ``command`` for the name of one, ``argument`` for what follows it.
        query: What was typed of it so far.
        start: Place in the text before the caret where the completed text begins.
    """

    kind: Literal["file", "command", "argument"]
    query: str
    start: int


def find_request(before: str, after: str = "") -> Request | None:
    """Return what could be completed in a text with the caret between ``before`` and ``after``."""
    if _COMMAND.match(before) and not after.strip():
        return Request("command", before[1:], 0)
    if _ARGUMENT.match(before) and not after.strip():
        return Request("argument", before, 0)
    line = before[before.rfind("\n") + 1 :]
    match = _MENTION.search(line)
    if match is None or (after and not after[0].isspace()):
        return None
    return Request("file", match["path"].lstrip('"'), len(before) - len(match["path"]))


def mention(path: str) -> str:
    """Return ``path`` as it stands behind ``@``: in quotes where it has spaces or marks of a sentence."""
    return path if _PLAIN.match(path) else f'"{path}"'


@dataclass(slots=True)
class FileList:
    """Files and folders of the project, searched as one types.

    A query that goes on from the last one looks only at what that one found.
    """

    _paths: list[str] = field(default_factory=list[str])
    _resources: frozenset[str] = frozenset()
    _query: str = ""
    _found: list[str] = field(default_factory=list[str])

    def __len__(self) -> int:
        return len(self._paths)

    def set(self, files: Iterable[str], resources: Iterable[str] = ()) -> None:
        """Take the files of the project, relative, with ``/``, and resources of servers as ``server:uri``."""
        listed = [path for path in files if _MENTIONABLE.match(path)]
        self._resources = frozenset(resources)
        self._paths = [*_folders(listed), *listed, *sorted(self._resources)]
        self._query, self._found = "", self._paths

    def search(self, query: str) -> list[Suggestion]:
        """Return the paths that hold the letters of ``query`` in order, best first."""
        wanted = query.casefold()
        if not wanted:
            top = [path for path in self._paths if "/" not in path.rstrip("/") or path in self._resources]
            return [self._file(path) for path in top[:MAX_SHOWN]]
        pool = self._found if self._query and wanted.startswith(self._query) else self._paths
        holds = re.compile(".*?".join(map(re.escape, wanted)), re.DOTALL).search
        self._query, self._found = wanted, [path for path in pool if holds(path.casefold())]
        scored = sorted(self._found[:_MOST_SCORED], key=lambda path: _score(wanted, path))
        return [self._file(path) for path in scored[:MAX_SHOWN]]

    def _file(self, path: str) -> Suggestion:
        if path in self._resources:
            return Suggestion(f"{path} ", path)
        # A folder goes on: its quote stays open.
        return Suggestion(mention(path).rstrip('"') if path.endswith("/") else f"{mention(path)} ", path)


def _folders(files: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for path in files:
        folder, _, _ = path.rpartition("/")
        while folder and f"{folder}/" not in found:
            found[f"{folder}/"] = None
            folder, _, _ = folder.rpartition("/")
    return sorted(found)


def _score(query: str, path: str) -> tuple[int, int, str]:
    """Return what sorts ``path`` among the matches: how well, then how long."""
    folded = path.casefold()
    name = folded.rstrip("/").rpartition("/")[2]
    if folded.rstrip("/") == query.rstrip("/"):
        return 0, len(path), path
    if folded.startswith(query):
        return 1, len(path), path
    if name.startswith(query):
        return 2, len(path), path
    if query in name:
        return 3, len(path), path
    if query in folded:
        return 4, len(path), path
    if _holds(query, name):
        return 5, len(path), path
    return 6, len(path), path


def _holds(query: str, text: str) -> bool:
    letters = iter(text)
    return all(letter in letters for letter in query)


def rank_commands(query: str, commands: Sequence[Suggestion]) -> list[Suggestion]:
    """Return the commands whose name holds ``query``: those that begin with it first."""
    wanted = query.casefold()
    begin = [item for item in commands if item.insert.strip("/ ").casefold().startswith(wanted)]
    if wanted:
        begin.sort(key=lambda item: len(item.insert))
    inside = [
        item
        for item in commands
        if item not in begin and len(wanted) > 1 and _holds(wanted, item.insert.strip("/ ").casefold())
    ]
    return [*begin, *inside][:MAX_SHOWN]
