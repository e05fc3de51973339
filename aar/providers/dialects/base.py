"""What every dialect's parser takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from aar.protocol.ids import new_id
from aar.protocol.messages import ToolUseBlock

Resolver = Callable[[str], str | None]
"""Gives the registered name of a tool for what a model called it, or ``None``."""


@dataclass(frozen=True, slots=True)
class ParsedText:
    """A whole answer, taken apart.

    When ``problem`` is set, nothing is to be run: ``calls`` is empty and ``prose`` is the answer as the
    model wrote it, so that it stands in the history when the model is asked again.

    Attributes:
        prose: All text that is not a call. Without calls it is the answer, character by character.
        rest: The end of ``prose`` that `Parser.feed` has not given out yet.
        calls: The calls, in the order of the answer.
        problem: One sentence or two for the model: what was wrong and what to write instead.
        cut: Whether the length limit ended the answer inside a call or a file.
    """

    prose: str
    rest: str
    calls: tuple[ToolUseBlock, ...] = ()
    problem: str | None = None
    cut: bool = False


class Shown:
    """What was shown of an answer: a beginning of it that never ends in white space."""

    def __init__(self) -> None:
        self.count = 0
        self._blank = ""

    def add(self, text: str) -> str:
        """Take the next text and return what may be shown: white space waits until something follows."""
        body = text.rstrip()
        if not body:
            self._blank += text
            return ""
        shown, self._blank = self._blank + body, text[len(body) :]
        self.count += len(shown)
        return shown


class Parser(Protocol):
    """Takes one answer piece by piece. A parser serves one answer only."""

    @property
    def current_path(self) -> str | None:
        """The file whose content is being received now, for the screen."""
        ...

    def feed(self, piece: str) -> str:
        """Take the next piece and return the text that may be shown now (perhaps none)."""
        ...

    def finish(self, *, cut: bool = False, native_calls: bool = False) -> ParsedText:
        """Tell what the answer was.

        Args:
            cut: The answer was ended by its length limit.
            native_calls: The answer had ordinary tool calls beside the text, so that all text is prose.
        """
        ...


class PlainParser:
    """Everything is prose."""

    current_path: str | None = None

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def feed(self, piece: str) -> str:
        self._pieces.append(piece)
        return piece

    def finish(self, *, cut: bool = False, native_calls: bool = False) -> ParsedText:
        return ParsedText("".join(self._pieces), "")


def make_resolver(names: Collection[str], resolve: Resolver | None = None) -> Resolver:
    """Return a resolver that knows ``names`` and asks ``resolve`` for any other name."""
    known = frozenset(names)

    def find(name: str) -> str | None:
        name = name.strip().removeprefix("functions.")
        if name in known:
            return name
        found = resolve(name) if resolve is not None and name else None
        return found if found in known else None

    return find


def make_call(name: str, arguments: dict[str, Any]) -> ToolUseBlock:
    """Return a tool call with an id of its own."""
    return ToolUseBlock(call_id=f"call_{new_id()}", name=name, arguments=arguments)


def join_prose(parts: list[str]) -> str:
    """Join the texts around calls; the first keeps its beginning, because it may be shown already."""
    later = [part.strip() for part in parts[1:] if part.strip()]
    return "\n\n".join([parts[0].rstrip(), *later] if parts[0].strip() else later)
