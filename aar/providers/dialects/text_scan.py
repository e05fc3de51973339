"""Cuts an answer into prose and candidates for tool calls, while it arrives.

Every decision is made on complete evidence only, so the cuts do not depend on how the answer was
chopped into pieces. What cannot be decided yet waits; the end of the answer decides the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aar.protocol.late import late_pattern
from aar.providers.dialects import loose_json
from aar.providers.dialects.base import Resolver
from aar.providers.dialects.call_shapes import TAG_NAMES, Reading, read_named, read_text

_JSON_FENCES = frozenset({"", "json", "json5", "jsonc", "xml", "text", "plaintext"})
_CALL_FENCES = frozenset({"tool_call", "tool_calls", "tool", "tool_code", "tool_use", "function_call"})
_MARK = late_pattern(
    rf"<{TAG_NAMES}>|<\|tool_call\|>|<function=|<invoke name=|\[TOOL_CALLS\]|\n", re.IGNORECASE
)
_MARKS = (
    "<tool_calls>", "<tool_call>", "<toolcalls>", "<toolcall>", "<function_calls>", "<function_call>",
    "<functioncalls>", "<functioncall>", "<tools>", "<tool_use>", "<|tool_call|>", "<function=",
    "<invoke name=", "[tool_calls]",
)  # fmt: skip
_END_TAG = late_pattern(rf"</{TAG_NAMES}>|<\|/?tool_call(?:_end)?\|>", re.IGNORECASE)
_END_FUNCTION = late_pattern(r"</(?:function|invoke)>", re.IGNORECASE)
_FENCE = late_pattern(r"[ \t]*(`{3,}|~{3,})([^\n`]*)\n")
_ACTION = late_pattern(
    r"[ \t]*\**Action\**:\**[ \t]*([^\n]*)\n\s*\**Action[ _]Input\**:\**\s*", re.IGNORECASE
)
_ACTION_START = late_pattern(r"[ \t]*\**Action\**:\**[ \t]*[^\n]*\n", re.IGNORECASE)
_NO_ACTION = frozenset({"none", "finish", "final answer", "n/a"})
_LINE_REST = late_pattern(r"[}\]\s]*?(?:\n|\Z)")
_MISTRAL_BEGUN = late_pattern(r"\s*[\w.-]*\s*(?:\[(?:A(?:R(?:G(?:S\]?)?)?)?)?)?\s*")
_MISTRAL = late_pattern(r"\s*([\w.-]+)\s*(?:\[ARGS\])?\s*(?=\{)")


@dataclass(frozen=True, slots=True)
class Prose:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate that is, or badly tries to be, a call.

    Attributes:
        text: Everything that belongs to it, frame included.
        reading: The calls, or what is wrong with it.
        explicit: The frame says that it is a call; otherwise what stands around it decides.
        open: The answer ended inside it.
    """

    text: str
    reading: Reading
    explicit: bool
    open: bool = False


Segment = Prose | Found


class Scanner:
    """Gives segments of a growing text, one at a time."""

    def __init__(self, resolve: Resolver) -> None:
        self._resolve = resolve
        self._line_start = True
        self._fence: str | None = None
        self._before = ""

    def next(self, text: str, eof: bool) -> Segment | None:
        """Return the segment at the start of ``text``, or ``None``: more text is needed."""
        segment = self._segment(text, eof) if text else None
        if segment is not None:
            self._line_start = segment.text.endswith("\n")
            self._before = segment.text[-1]
        return segment

    def _segment(self, text: str, eof: bool) -> Segment | None:
        if self._fence is not None:
            return self._in_fence(text, eof, self._fence)
        if self._line_start:
            known, segment = self._at_line_start(text, eof)
            if known:
                return segment
        return self._in_line(text, eof)

    # A pair: whether the line start decided, and what it decided (`None`: more text is needed).
    def _at_line_start(self, text: str, eof: bool) -> tuple[bool, Segment | None]:
        line = text.lstrip(" \t")
        if not line:
            return not eof, None
        if line[0] in "`~":
            return self._fenced(text, eof)
        if line[0] in "{[":
            return self._bare(text, eof)
        if line[0] in "*aA":
            return self._action(text, eof)
        return False, None

    def _in_line(self, text: str, eof: bool) -> Segment | None:
        match = _MARK.search(text)
        if match is None:
            end = len(text) if eof else _possible_mark(text)
            return Prose(text[:end]) if end else None
        if match[0] == "\n":
            return Prose(text[: match.end()])
        if match.start():
            return Prose(text[: match.start()])
        if self._before == "`" and not self._line_start:
            return Prose(text[: match.end()])
        return self._tagged(text, eof, match)

    def _in_fence(self, text: str, eof: bool, fence: str) -> Segment | None:
        end = text.find("\n")
        if end < 0 and not eof:
            return None
        line = text if end < 0 else text[: end + 1]
        if _closes(line, fence):
            self._fence = None
        return Prose(line)

    def _fenced(self, text: str, eof: bool) -> tuple[bool, Segment | None]:
        line = text.lstrip(" \t")
        if not line.startswith(("```", "~~~")):
            return ("```".startswith(line) or "~~~".startswith(line)) and not eof, None
        opening = _FENCE.match(text)
        if opening is None:
            return "\n" not in line and not eof, None
        fence, info = opening[1], opening[2].strip().lower().partition(" ")[0]
        body = text[opening.end() :].lstrip()
        if info in _JSON_FENCES | _CALL_FENCES and not eof and not body:
            return True, None
        if info not in _CALL_FENCES and (info not in _JSON_FENCES or body[:1] not in tuple("{[<")):
            self._fence = fence
            return True, Prose(opening[0])
        return True, self._fenced_call(text, eof, opening, info in _CALL_FENCES)

    def _fenced_call(self, text: str, eof: bool, opening: re.Match[str], explicit: bool) -> Segment | None:
        start = opening.end()
        for close in re.finditer(
            rf"^[ \t]*{opening[1][0]}{{{len(opening[1])},}}[ \t]*\r?$", text[start:], re.M
        ):
            if start + close.end() == len(text) and not eof:
                return None
            body = text[start : start + close.start()]
            if _inside_string(body):
                continue
            end = min(start + close.end() + 1, len(text))
            return self._found(text[:end], body, explicit)
        return self._found(text, text[start:], explicit, is_open=True) if eof else None

    def _found(self, whole: str, body: str, explicit: bool, is_open: bool = False) -> Segment:
        reading = read_text(body, self._resolve, explicit=explicit)
        return Prose(whole) if reading.nothing else Found(whole, reading, explicit, is_open)

    def _bare(self, text: str, eof: bool) -> tuple[bool, Segment | None]:
        start = len(text) - len(text.lstrip(" \t"))
        if text[start : start + 12].lower() == "[tool_calls]":
            return False, None
        inner = text[start + 1 :].lstrip()
        if not inner:
            return not eof, None
        if text[start] == "[" and not eof and "[tool_calls]".startswith(text[start:].lower()):
            return True, None
        if inner[0] not in ("{" if text[start] == "[" else "\"'"):
            return False, None
        end = loose_json.value_end(text, start)
        if end is None:
            return True, self._found(text, text, False, is_open=True) if eof else None
        closers = _LINE_REST.match(text, end)
        if closers is None:
            return True, Prose(text[:end])
        if closers.end() == len(text) and not text.endswith("\n") and not eof:
            return True, None
        return True, self._found(text[: closers.end()], text[: closers.end()], False)

    def _action(self, text: str, eof: bool) -> tuple[bool, Segment | None]:
        line = text.lstrip(" \t*").lower()
        if not line.startswith("action"):
            return "action".startswith(line) and not eof, None
        match = _ACTION.match(text)
        if match is None:
            return self._action_undecided(text) and not eof, None
        start = match.end()
        if text[start : start + 1] in {"{", "["}:
            end = loose_json.value_end(text, start)
            if end is None and not eof:
                return True, None
        else:
            newline = text.find("\n", start)
            if newline < 0 and not eof:
                return True, None
            end = newline if newline >= 0 else None
        stop = len(text) if end is None else end
        reading = read_named(match[1], text[start:stop], self._resolve)
        if reading.unknown is not None and reading.unknown.lower() in {
            "none",
            "finish",
            "final answer",
            "n/a",
        }:
            return True, Prose(text[:stop])
        return True, Found(text[:stop], reading, True, open=end is None)

    def _action_undecided(self, text: str) -> bool:
        first = _ACTION_START.match(text)
        if first is None:
            return "\n" not in text
        rest = text[first.end() :].lstrip().lstrip("*").lower().replace("_", " ")
        wanted = "action input"
        return wanted.startswith(rest[: len(wanted)]) and "\n" not in rest

    def _tagged(self, text: str, eof: bool, mark: re.Match[str]) -> Segment | None:
        tag = mark[0].lower()
        if tag == "[tool_calls]":
            return self._mistral(text, eof, mark.end())
        bare_function = tag.startswith(("<function=", "<invoke"))
        body_start = mark.start() if bare_function else mark.end()
        body = text[body_start:].lstrip()
        if not body and not eof:
            return None
        if body[:1] not in tuple("{[<"):
            return Prose(mark[0])
        for close in (_END_FUNCTION if bare_function else _END_TAG).finditer(text, mark.end()):
            stop = close.end() if bare_function else close.start()
            if not _inside_string(text[body_start:stop]):
                return self._explicit(text[: close.end()], text[body_start:stop])
        if not eof:
            return None
        return self._unclosed(text, body_start)

    def _unclosed(self, text: str, start: int) -> Segment:
        start += len(text[start:]) - len(text[start:].lstrip())
        end = loose_json.value_end(text, start) if text[start : start + 1] in {"{", "["} else None
        if end is None:
            return self._explicit(text, text[start:], is_open=True)
        return self._explicit(text[:end], text[start:end])

    def _explicit(self, whole: str, body: str, is_open: bool = False) -> Segment:
        reading = read_text(body, self._resolve, explicit=True)
        if reading.nothing and body.lstrip().startswith("<"):
            return Prose(whole)
        if reading.nothing:
            reading = Reading(problem=_EMPTY)
        return Found(whole, reading, True, is_open)

    def _mistral(self, text: str, eof: bool, start: int) -> Segment | None:
        if not eof and _MISTRAL_BEGUN.fullmatch(text, start):
            return None
        named = _MISTRAL.match(text, start)
        body = named.end() if named else start + len(text[start:]) - len(text[start:].lstrip())
        if text[body : body + 1] not in {"{", "["}:
            return Prose(text[:start])
        end = loose_json.value_end(text, body)
        if end is None and not eof:
            return None
        stop = len(text) if end is None else end
        if named is None:
            return self._explicit(text[:stop], text[body:stop], end is None)
        reading = read_named(named[1], text[body:stop], self._resolve)
        return Found(text[:stop], reading, True, end is None)


_EMPTY = 'The tool call is not complete. Write {"name": …, "arguments": {…}} between the tags.'


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and not bare.strip(fence[0])


def _inside_string(body: str) -> bool:
    start = len(body) - len(body.lstrip())
    if body[start : start + 1] not in {"{", "["}:
        return False
    return loose_json.value_end(body, start) is None and loose_json.missing_closers(body, start) is None


def _possible_mark(text: str) -> int:
    """Return the index from which ``text`` may turn out to be a mark."""
    for match in re.finditer(r"[<\[]", text):
        tail = text[match.start() :].lower()
        if any(mark.startswith(tail) for mark in _MARKS):
            return match.start()
    return len(text)
