"""Tool calls written as plain text: dialect ``text``, and the safety net of ``native``."""

from __future__ import annotations

import re

from aar.protocol.late import late_pattern
from aar.providers.dialects.base import ParsedText, Resolver, Shown, join_prose, make_call
from aar.providers.dialects.text_scan import Found, Prose, Scanner, Segment

_PIECE = 2_048
_SHORT_PROSE = 400
_EXAMPLE = late_pattern(
    r"\b(?:for example|for instance|an example|examples?:|e\.g\.|such as|would (?:look|be)|looks? like|"
    r"the (?:expected )?(?:format|schema|syntax|shape)|sample|illustrat\w+|hypothetical\w*|documented)",
    re.IGNORECASE,
)
_TEXT_AFTER = (
    "Your answer has a tool call with other text after it, so it was not run. If it shall run, write the "
    "call again as the last thing of your answer; if it was an example only, say so in words."
)
_CUT = (
    "The answer was cut off by its length limit inside a tool call, so nothing was run. Write a shorter call."
)


class TextCallParser:
    """Finds tool calls in the text of an answer, and lets the prose before them through at once.

    Args:
        resolve: Gives the registered name of a tool, or ``None``.
        strict: For models that have ordinary tool calls: only an answer that is nothing but calls, after
            little prose, is taken for calls, and the model is never asked again for a mere likeness.
        eager: For models that are led step by step: no call is an example, and text after one is dropped.
    """

    current_path: str | None = None

    def __init__(self, resolve: Resolver, *, strict: bool = False, eager: bool = False) -> None:
        self._scanner = Scanner(resolve)
        self._eager = eager
        self._strict = strict
        self._raw: list[str] = []
        self._pending = ""
        self._retry_at = 0
        self._segments: list[Segment] = []
        self._holding = False
        self._shown = Shown()

    def feed(self, piece: str) -> str:
        self._raw.append(piece)
        shown: list[str] = []
        for start in range(0, len(piece), _PIECE):
            self._pending += piece[start : start + _PIECE]
            # What waits is looked at again only when it has grown by an eighth: linear work in all.
            if len(self._pending) >= self._retry_at:
                self._scan(shown, eof=False)
        return "".join(shown)

    def _scan(self, shown: list[str], *, eof: bool) -> None:
        while (segment := self._scanner.next(self._pending, eof)) is not None:
            self._pending = self._pending[len(segment.text) :]
            self._segments.append(segment)
            if isinstance(segment, Found):
                self._holding = True
            if not self._holding:
                shown.append(self._shown.add(segment.text))
        waiting = len(self._pending)
        self._retry_at = 0 if waiting < 256 else waiting + waiting // 8

    def finish(self, *, cut: bool = False, native_calls: bool = False) -> ParsedText:
        raw, told = "".join(self._raw), self._shown.count
        self._scan([], eof=True)
        found = [segment for segment in self._segments if isinstance(segment, Found)]
        if native_calls or not found:
            return ParsedText(raw, raw[told:])
        if cut and found[-1].open:
            return ParsedText(raw, raw[told:], problem=_CUT, cut=True)
        take, problem = self._judge_strictly() if self._strict else self._judge()
        if problem is not None or not take:
            return ParsedText(raw, raw[told:], problem=problem)
        prose = self._prose(take)
        calls = [make_call(call.name, call.arguments) for one in take for call in one.reading.calls]
        return ParsedText(prose, prose[told:], tuple(calls))

    def _prose(self, taken: list[Found]) -> str:
        parts = [""]
        for segment in self._segments:
            if isinstance(segment, Found) and segment in taken:
                parts.append("")
            else:
                parts[-1] += segment.text
        return join_prose(parts)

    # Which candidates are calls: (calls, problem). Neither: the answer is prose.
    def _judge(self) -> tuple[list[Found], str | None]:
        take: list[Found] = []
        for index, segment in enumerate(self._segments):
            if not isinstance(segment, Found) or self._is_example(index, segment):
                continue
            if segment.reading.problem is not None:
                return [], self._explain(segment)
            if not segment.explicit and not self._eager and self._text_after(index):
                return [], _TEXT_AFTER
            take.append(segment)
        return take, None

    def _is_example(self, index: int, segment: Found) -> bool:
        if segment.explicit or (self._eager and segment.reading.unknown is None):
            return False
        if segment.reading.unknown is not None:
            return bool(self._text_before(index).strip() or self._text_after(index))
        lead = self._text_before(index).rstrip().rpartition("\n")[2]
        after = self._text_after(index).lstrip().partition("\n")[0]
        return bool(_EXAMPLE.search(lead) or _EXAMPLE.search(after))

    def _judge_strictly(self) -> tuple[list[Found], str | None]:
        first = next(i for i, segment in enumerate(self._segments) if isinstance(segment, Found))
        lead = self._text_before(first)
        found = [segment for segment in self._segments[first:] if isinstance(segment, Found)]
        alone = not self._text_after(first) and len(lead.strip()) <= _SHORT_PROSE and "```" not in lead
        if not alone or any(self._is_example(first, segment) for segment in found):
            return [], None
        broken = next((segment for segment in found if segment.reading.problem), None)
        if broken is not None:
            return [], self._explain(broken) if broken.explicit else None
        return found, None

    def _explain(self, segment: Found) -> str | None:
        if segment.reading.unknown is not None:
            return f"{segment.reading.problem} Call a tool that you were told of, or answer in plain text."
        return segment.reading.problem

    def _text_before(self, index: int) -> str:
        return "".join(part.text for part in self._segments[:index] if isinstance(part, Prose))

    def _text_after(self, index: int) -> str:
        after = "".join(part.text for part in self._segments[index + 1 :] if isinstance(part, Prose))
        return "" if not after.strip("}] \t\r\n") else after
