"""Reading patches: the ``*** Begin Patch`` envelope and unified diffs (git's headers included)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.late import late_pattern

_RANGE: Final = late_pattern(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")
_FILE: Final = late_pattern(r"\*\*\* (Add|Update|Delete) File: ?(.+)")
_MOVE: Final = late_pattern(r"\*\*\* Move to: ?(.+)")
_ESCAPE: Final = late_pattern(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED: Final = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


@dataclass(slots=True)
class Hunk:
    r"""One change: lines with their mark, ``" "`` context, ``-`` removed, ``+`` added.

    Attributes:
        lines: (mark, text without line end).
        anchors: Lines that come before, to find the place.
        old_start: Line number (from 1) that a unified diff gives; a hint.
        at_end: Whether the hunk is at the end of the file.
        old_ends_bare: Whether the last old line has no line end.
        new_ends_bare: Whether the last new line has no line end.
    """

    lines: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    anchors: list[str] = field(default_factory=list[str])
    old_start: int | None = None
    at_end: bool = False
    old_ends_bare: bool = False
    new_ends_bare: bool = False

    @property
    def old(self) -> list[str]:
        """Lines that must be there."""
        return [text for mark, text in self.lines if mark != "+"]


@dataclass(slots=True)
class FilePatch:
    """What happens to one file; ``move_to`` is its new name, if it gets one."""

    action: Literal["add", "update", "delete"]
    path: str
    move_to: str | None = None
    hunks: list[Hunk] = field(default_factory=list[Hunk])


def bad_patch(line: int, reason: str) -> ToolFailure:
    """Return the failure for a patch that cannot be read."""
    return ToolFailure(
        ToolCategory.INVALID_ARGUMENTS, f"The patch cannot be read at its line {line}: {reason}"
    )


def parse_patch(patch: str) -> list[FilePatch]:
    """Read a patch in either format.

    Raises:
        ToolFailure: ``invalid_arguments`` with the line of the patch that is wrong.
    """
    lines = _unwrap(patch.replace("\r\n", "\n").split("\n"))
    start = next((i for i, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None)
    if start is not None or any(_FILE.match(line) for line in lines):
        files = _Envelope(lines, 0 if start is None else start + 1).read()
    else:
        files = _Unified(lines).read()
    if not files:
        raise bad_patch(
            1, "it names no file. Begin with '*** Begin Patch' or with '--- a/FILE' and '+++ b/FILE'."
        )
    return files


def _unwrap(lines: list[str]) -> list[str]:
    """Drop a Markdown fence or a here-document around the patch, and blank lines at its ends."""
    while lines and not lines[0].strip():
        lines = lines[1:]
    while lines and not lines[-1]:
        lines = lines[:-1]
    if lines and (lines[0].startswith("```") or re.match(r"(apply_patch\s+)?<<", lines[0])):
        last = lines[-1].strip()
        lines = lines[1:-1] if last.startswith("```") or last.strip("'\"") in lines[0] else lines[1:]
    return lines


class _Envelope:
    def __init__(self, lines: list[str], start: int) -> None:
        self._lines = lines
        self._at = start

    def read(self) -> list[FilePatch]:
        files: list[FilePatch] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() == "*** End Patch":
                break
            found = _FILE.fullmatch(line.rstrip())
            if found is None and line.strip():
                raise bad_patch(self._at + 1, f"expected '*** Update File: …', got {line[:80]!r}.")
            self._at += 1
            if found is not None:
                files.append(self._file(found.group(1), found.group(2).strip()))
        return files

    def _file(self, action: str, path: str) -> FilePatch:
        if action == "Delete":
            return FilePatch("delete", path)
        if action == "Add":
            return FilePatch("add", path, hunks=[self._added()])
        file = FilePatch("update", path)
        moved = _MOVE.fullmatch(self._lines[self._at].rstrip()) if self._at < len(self._lines) else None
        if moved is not None:
            file.move_to = moved.group(1).strip()
            self._at += 1
        file.hunks.extend(self._hunks())
        if not file.hunks and file.move_to is None:
            raise bad_patch(self._at, f"the update of {path} has no changes.")
        return file

    def _body(self) -> Iterator[str]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("*** ") and line.strip() != "*** End of File":
                return
            self._at += 1
            yield line

    def _added(self) -> Hunk:
        hunk = Hunk()
        for line in self._body():
            if line.startswith("+"):
                hunk.lines.append(("+", line[1:]))
            elif line.strip():
                raise bad_patch(self._at, f"every line of an added file begins with '+', got {line[:80]!r}.")
        return hunk

    def _hunks(self) -> Iterator[Hunk]:
        hunk = Hunk()
        blank = 0
        for line in self._body():
            if line.startswith("@@"):
                if hunk.lines:
                    yield _without_last(hunk, blank)
                    hunk = Hunk()
                self._anchor(hunk, line)
            elif line.strip() == "*** End of File":
                hunk.at_end = True
            elif not line:
                hunk.lines.append((" ", ""))
                blank += 1
                continue
            elif line[0] in " -+":
                hunk.lines.append((line[0], line[1:]))
            else:
                raise bad_patch(self._at, f"a line begins with ' ', '-', '+' or '@@', got {line[:80]!r}.")
            blank = 0
        if hunk.lines:
            yield _without_last(hunk, blank)

    def _anchor(self, hunk: Hunk, line: str) -> None:
        ranged = _RANGE.fullmatch(line)
        if ranged:
            hunk.old_start = int(ranged.group(1))
            return
        anchor = line[2:].removesuffix("@@").strip()
        if anchor:
            hunk.anchors.append(anchor)


def _without_last(hunk: Hunk, blank: int) -> Hunk:
    """Drop empty lines at the end that only separate parts of the patch."""
    if blank:
        del hunk.lines[-blank:]
    return hunk


class _Unified:
    """Reads unified diffs; the counts in the ``@@`` lines tell where a hunk ends."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._files: list[FilePatch] = []
        self._from: str | None = None
        self._named = ""

    def read(self) -> list[FilePatch]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("--- ") and self._next().startswith("+++ "):
                self._header(line, self._next())
                self._at += 2
            elif line.startswith("@@"):
                self._hunk(line)
            else:
                self._extra(line)
                self._at += 1
        return self._files

    def _next(self) -> str:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""

    def _header(self, old_line: str, new_line: str) -> None:
        old, new = _header_path(old_line), _header_path(new_line)
        if old == "/dev/null":
            self._files.append(FilePatch("add", new.removeprefix("b/")))
        elif new == "/dev/null":
            self._files.append(FilePatch("delete", old.removeprefix("a/")))
        else:
            both = old.startswith("a/") and new.startswith("b/")
            source, target = (old[2:], new[2:]) if both else (old, new)
            renamed = self._pending_rename(source)
            if not renamed:
                move = target if target != source else None
                self._files.append(FilePatch("update", source, move))

    def _pending_rename(self, source: str) -> bool:
        last = self._files[-1] if self._files else None
        return last is not None and last.path == source and last.move_to is not None and not last.hunks

    def _extra(self, line: str) -> None:
        if line.startswith("diff --git "):
            self._named = _one_name(line.removeprefix("diff --git "))
        elif line.startswith(("new file mode ", "deleted file mode ")) and self._named and self._is_empty():
            self._files.append(FilePatch("add" if line.startswith("new") else "delete", self._named))
        elif line.startswith("rename from "):
            self._from = _unquoted(line.removeprefix("rename from "))
        elif line.startswith("rename to ") and self._from is not None:
            self._files.append(FilePatch("update", self._from, _unquoted(line.removeprefix("rename to "))))
            self._from = None
        elif line.startswith(("GIT binary patch", "Binary files ")):
            raise bad_patch(self._at + 1, "binary patches are not supported.")

    def _is_empty(self) -> bool:
        """Tell whether the file that begins here has no lines: then git writes nothing but its mode."""
        after = self._at + (2 if self._next().startswith("index ") else 1)
        rest = self._lines[after] if after < len(self._lines) else ""
        return not rest.startswith(("--- ", "GIT binary patch", "Binary files "))

    def _hunk(self, line: str) -> None:
        if not self._files:
            raise bad_patch(self._at + 1, "a hunk comes before any '--- a/FILE' and '+++ b/FILE'.")
        found = _RANGE.fullmatch(line)
        hunk = Hunk()
        self._at += 1
        if found is None:
            self._counted(hunk, None, None)
        else:
            old, new = int(found.group(2) or 1), int(found.group(4) or 1)
            hunk.old_start = int(found.group(1)) + (0 if old else 1)
            self._counted(hunk, old, new)
        self._files[-1].hunks.append(hunk)

    def _counted(self, hunk: Hunk, old: int | None, new: int | None) -> None:
        """Read the lines of a hunk; its counts end it only where a line cannot belong to it any more.

        Models miscount, so that a header ends a hunk early, and further marked lines are taken.
        """
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(("@@", "diff --git ")):
                return
            if not line.startswith("\\") and self._complete(hunk, old, new):
                header = line.startswith("--- ") and self._next().startswith("+++ ")
                if header or line == "-- " or line[:1] not in ("+", "-", " "):
                    return
            self._line(hunk)

    def _complete(self, hunk: Hunk, old: int | None, new: int | None) -> bool:
        if old is None or new is None:
            return True
        have_old = sum(mark != "+" for mark, _ in hunk.lines)
        have_new = sum(mark != "-" for mark, _ in hunk.lines)
        return have_old >= old and have_new >= new

    def _line(self, hunk: Hunk) -> None:
        line = self._lines[self._at]
        if line.startswith("\\"):
            if hunk.lines and hunk.lines[-1][0] != "+":
                hunk.old_ends_bare = True
            if hunk.lines and hunk.lines[-1][0] != "-":
                hunk.new_ends_bare = True
        elif line[:1] in (" ", "-", "+"):
            hunk.lines.append((line[0], line[1:]))
        elif not line:
            hunk.lines.append((" ", ""))
        else:
            raise bad_patch(self._at + 1, f"a line of a hunk begins with ' ', '-' or '+', got {line[:80]!r}.")
        self._at += 1


def _header_path(line: str) -> str:
    return _unquoted(line[4:].split("\t", 1)[0].strip())


def _one_name(both: str) -> str:
    """Return the name in "a/NAME b/NAME"; empty: it is not the same name twice."""
    half = len(both) // 2
    old, new = _unquoted(both[:half]).removeprefix("a/"), _unquoted(both[half + 1 :]).removeprefix("b/")
    return old if old == new else ""


def _unquoted(name: str) -> str:
    """Return a name that git may have quoted like a string of C, its bytes as octal numbers."""
    if len(name) < 2 or not (name[0] == name[-1] == '"'):
        return name
    # Bytes that git leaves as they are may stand beside quoted ones.
    parts = _ESCAPE.split(name[1:-1])
    data = b"".join(_byte(part) if at % 2 else part.encode() for at, part in enumerate(parts))
    return data.decode("utf-8", "surrogateescape")


def _byte(escape: str) -> bytes:
    if len(escape) == 3:
        return bytes([int(escape, 8) & 255])
    return bytes([_ESCAPED[escape]]) if escape in _ESCAPED else escape.encode()
