"""Cuts a whole-file answer into prose, file blocks and ``RUN:`` and ``READ:`` lines."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field

from aar.protocol.late import late_pattern
from aar.providers.dialects import fences
from aar.providers.dialects.fences import Fence
from aar.providers.dialects.files_text import NO_FINAL_NEWLINE
from aar.providers.dialects.paths import comment_path, info_path, path_line

SHELLS = frozenset({"bash", "sh", "shell", "zsh", "console", "terminal", "powershell", "cmd", "bat"})
_MARKDOWN = frozenset({"md", "markdown", "mdx"})
_COMMAND = late_pattern(r"^\s*(?:[-*>]\s+)?[*_`]{0,4}(RUN|READ)[*_]{0,3}:[*_]{0,3}[ \t]*(.*?)[ \t\r]*$")
_MAX_CLOSERS = 12


@dataclass(frozen=True, slots=True)
class Text:
    """Prose, character by character."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A ``RUN:`` or ``READ:`` line, or ``RUN:`` with a block behind it."""

    text: str
    kind: str
    value: str


@dataclass(slots=True)
class Block:
    """A fenced block, or a bare search/replace block.

    Attributes:
        text: Everything that belongs to it, path line and fences included.
        body: The lines inside, each ended by a line feed.
        header: The path on the line before it, if that line is nothing else.
        lead: The line before it, when it is a sentence.
        closed: Whether the closing fence was there.
        newline: Whether the file ends with a line feed.
    """

    text: str
    fence: Fence | None
    body: str
    header: str | None = None
    lead: str = ""
    closed: bool = True
    newline: bool = True
    info_path: str | None = None
    comment_path: str | None = None

    @property
    def path(self) -> str | None:
        """The path that was written for the block, except in a sentence."""
        return self.header or self.info_path or self.comment_path


Part = Text | Command | Block


def command_line(line: str) -> tuple[str, str] | None:
    """Read ``line`` as (``RUN`` or ``READ``, rest), or return ``None``."""
    match = _COMMAND.match(line)
    if match is None:
        return None
    value = match[2]
    if line.lstrip(" -*>").startswith("`") and value.endswith("`"):
        value = value[:-1]
    if len(value) > 1 and value[0] == value[-1] == "`":
        value = value[1:-1]
    if value.strip("<>*[] ").lower() in {"command", "path", "the command", "the path"}:
        return None
    return match[1], value


@dataclass(slots=True)
class _Cutter:
    raw: str
    known: frozenset[str]
    lines: list[str] = field(default_factory=list[str])
    starts: list[int] = field(default_factory=list[int])
    parts: list[Part] = field(default_factory=list[Part])
    prose: int = 0

    def cut(self) -> list[Part]:
        self.lines = self.raw.split("\n")
        at = 0
        for line in self.lines:
            self.starts.append(at)
            at += len(line) + 1
        self.starts.append(len(self.raw))
        index = 0
        while index < len(self.lines):
            index = self._step(index)
        self._take_prose(len(self.lines))
        return self.parts

    def _span(self, first: int, last: int) -> str:
        return self.raw[self.starts[first] : self.starts[last]]

    def _take_prose(self, stop: int) -> None:
        if stop > self.prose and (text := self._span(self.prose, stop)):
            self.parts.append(Text(text))

    def _add(self, part: Part, first: int, after: int) -> int:
        self._take_prose(first)
        self.parts.append(part)
        self.prose = after
        return after

    def _step(self, index: int) -> int:
        line = self.lines[index]
        command = command_line(line)
        if command is not None:
            return self._command(index, *command)
        fence = fences.opening(line)
        if fence is not None:
            return self._fenced(index, fence)
        if line.startswith("<<<<<<<"):
            return self._search_replace(index)
        return index + 1

    def _command(self, index: int, kind: str, value: str) -> int:
        if value:
            part = Command(self._span(index, index + 1), kind, value)
            return self._add(part, index, index + 1)
        start = self._next_line(index + 1)
        fence = fences.opening(self.lines[start]) if start is not None else None
        if kind != "RUN" or start is None or fence is None:
            return index + 1
        end = self._first_closer(start, fence)
        stop = len(self.lines) if end is None else end
        script = "\n".join(self.lines[start + 1 : stop])
        after = min(stop + 1, len(self.lines))
        return self._add(Command(self._span(index, after), kind, script), index, after)

    def _next_line(self, index: int) -> int | None:
        return next((i for i in range(index, len(self.lines)) if self.lines[i].strip()), None)

    def _header(self, index: int) -> tuple[int, str]:
        """Return the line before ``index`` that may name the file, with at most two empty ones between."""
        for before in range(index - 1, max(self.prose, index - 4) - 1, -1):
            if self.lines[before].strip():
                return before, self.lines[before]
        return index, ""

    def _fenced(self, index: int, fence: Fence) -> int:
        before, lead = self._header(index)
        header = path_line(lead, self.known) if lead else None
        first = self.lines[index + 1] if index + 1 < len(self.lines) else ""
        block = Block("", fence, "", header, lead)
        block.info_path = info_path(fence.info, self.known)
        block.comment_path = comment_path(first, self.known)
        if fence.language in SHELLS and block.path is None:
            return self._shell(index, fence, first)
        stop, after = self._end(index, fence, block.path or "")
        block.closed = after > stop
        if not block.closed:
            stop = after = self._without_commands(index, stop)
        if after < len(self.lines) and self.lines[after].rstrip("\r") == NO_FINAL_NEWLINE:
            block.newline, after = False, after + 1
        block.body = "".join(line + "\n" for line in self._body(index, stop))
        start = before if header is not None else index
        block.text = self._span(start, after)
        return self._add(block, start, after)

    def _body(self, index: int, stop: int) -> list[str]:
        lines = self.lines[index + 1 : stop]
        at_end = stop == len(self.lines) and lines and lines[-1] == ""
        return lines[:-1] if at_end else lines

    def _shell(self, index: int, fence: Fence, first: str) -> int:
        end = self._first_closer(index, fence)
        after = len(self.lines) if end is None else end + 1
        command = command_line(first)
        if command is None or command[0] != "RUN":
            return after
        body = self.lines[index + 1 : after if end is None else end]
        values = [(command_line(line) or ("", line))[1] for line in body if line.strip()]
        return self._add(Command(self._span(index, after), "RUN", "\n".join(values)), index, after)

    def _without_commands(self, index: int, stop: int) -> int:
        """Leave the commands out that follow a block whose closing fence is missing."""
        end = stop
        while end > index + 1 and (not self.lines[end - 1].strip() or command_line(self.lines[end - 1])):
            end -= 1
        commands = [i for i in range(end, stop) if command_line(self.lines[i])]
        return commands[0] if commands else stop

    def _first_closer(self, index: int, fence: Fence) -> int | None:
        lines = self.lines
        return next((i for i in range(index + 1, len(lines)) if fences.closes(lines[i], fence)), None)

    def _end(self, index: int, fence: Fence, path: str) -> tuple[int, int]:
        """Return where the body stops and where the text goes on; the same line: no closing fence."""
        limit = self._next_block(index, fence, path)
        closers = [i for i in range(index + 1, limit) if fences.closes(self.lines[i], fence)]
        if not closers:
            return limit, limit
        if _is_markdown(path, fence):
            end = self._markdown_end(index, limit, fence)
        else:
            end = self._code_end(index, closers[:_MAX_CLOSERS], path, fence)
        return (limit, limit) if end is None else (end, end + 1)

    def _next_block(self, index: int, fence: Fence, path: str) -> int:
        """Return the path line of the next block, if that begins before this one was closed."""
        markdown = _is_markdown(path, fence)
        for i in range(index + 1, len(self.lines)):
            inner = fences.opening(self.lines[i])
            if inner is None or not inner.marks.startswith(fence.marks):
                continue
            if not inner.info and not markdown:
                break
            lead = next((j for j in range(i - 1, max(index, i - 4), -1) if self.lines[j].strip()), None)
            if inner.info and lead is not None and path_line(self.lines[lead], self.known):
                return lead
        return len(self.lines)

    def _code_end(self, index: int, closers: list[int], path: str, fence: Fence) -> int:
        """Take the first closing fence, except where only a later one leaves valid Python."""
        if not (path.endswith(".py") or fence.language in {"python", "py"}) or len(closers) == 1:
            return closers[0]
        for end in closers:
            if parses_as_python("\n".join(self.lines[index + 1 : end])):
                return end
        return closers[0]

    def _markdown_end(self, index: int, limit: int, fence: Fence) -> int | None:
        """Pair the fences inside a Markdown file; the first that cannot open a block closes the file."""
        inside = False
        for i in range(index + 1, limit):
            inner = fences.opening(self.lines[i])
            if inner is None or not inner.marks.startswith(fence.marks):
                continue
            if inside:
                inside = bool(inner.info)
            elif inner.info or self._opens_inner(i, limit, fence):
                inside = True
            else:
                return i
        return None

    def _opens_inner(self, index: int, limit: int, fence: Fence) -> bool:
        later = sum(fences.closes(line, fence) for line in self.lines[index + 1 : limit])
        following = self.lines[index + 1] if index + 1 < limit else ""
        if not following.strip() or following.startswith(NO_FINAL_NEWLINE):
            return False
        return later >= 2 and command_line(following) is None

    def _search_replace(self, index: int) -> int:
        before, lead = self._header(index)
        header = path_line(lead, self.known) if lead else None
        end = next((i for i in range(index, len(self.lines)) if self.lines[i].startswith(">>>>>>>")), None)
        if end is None or "=======" not in [line.rstrip() for line in self.lines[index:end]]:
            return index + 1
        start = before if header is not None else index
        body = "".join(line + "\n" for line in self.lines[index : end + 1])
        block = Block(self._span(start, end + 1), None, body, header, lead)
        return self._add(block, start, end + 1)


def _is_markdown(path: str, fence: Fence) -> bool:
    return path.lower().endswith((".md", ".markdown", ".mdx")) or (not path and fence.language in _MARKDOWN)


def parses_as_python(text: str) -> bool:
    """Tell whether ``text`` is valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def cut_answer(raw: str, known: frozenset[str]) -> list[Part]:
    """Return the parts of an answer; their ``text`` joined is ``raw``."""
    return _Cutter(raw, known).cut()
