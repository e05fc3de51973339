"""Splits thinking that a model wrote between tags at the start of its answer (``<think>…</think>``).

Tags count only at the very start of the answer, so that a model may write about them later. Nothing is
lost: every character but the tags themselves and the white space next to them comes out once.
"""

from __future__ import annotations

from typing import Literal

Part = tuple[Literal["text", "reasoning"], str]

TAGS = ("think", "thinking", "thought", "reasoning")
"""Names of tags that models think in."""

_OPENINGS = tuple(f"<{tag}>" for tag in TAGS)


class ThinkSplitter:
    """Splits one answer. Feed it pieces of any size; the joined output never depends on the cuts."""

    def __init__(self) -> None:
        self._state: Literal["start", "inside", "after", "text"] = "start"
        self._held = ""
        self._closing = ""
        self._strip = False

    def feed(self, piece: str) -> list[Part]:
        """Take the next piece of text and return what is decided."""
        if self._state == "text":
            return [("text", piece)] if piece else []
        self._held += piece
        parts: list[Part] = []
        if self._state == "start":
            self._open(parts)
        if self._state == "inside":
            self._close(parts)
        if self._state == "after":
            self._resume(parts)
        return parts

    def finish(self) -> list[Part]:
        """Return what is still held back at the end of the answer."""
        held, self._held = self._held, ""
        if self._state == "inside":
            held = held.rstrip() if not self._strip else held.strip()
            return [("reasoning", held)] if held else []
        if self._state == "after":
            return []
        return [("text", held)] if held else []

    def _open(self, parts: list[Part]) -> None:
        body = self._held.lstrip()
        for opening in _OPENINGS:
            if body.startswith(opening):
                self._state, self._strip = "inside", True
                self._closing = f"</{opening[1:]}"
                self._held = body[len(opening) :]
                return
        if not any(opening.startswith(body) for opening in _OPENINGS):
            self._to_text(parts, self._held)

    def _close(self, parts: list[Part]) -> None:
        if self._strip:
            self._held = self._held.lstrip()
            self._strip = not self._held
        end = self._held.find(self._closing)
        if end >= 0:
            thought = self._held[:end].rstrip()
            self._held = self._held[end + len(self._closing) :]
            self._state = "after"
        else:
            sure = self._sure(self._held)
            thought, self._held = self._held[:sure], self._held[sure:]
        if thought:
            parts.append(("reasoning", thought))

    def _sure(self, text: str) -> int:
        """Return how much of ``text`` is neither a begun closing tag nor white space before one."""
        cut = text.rfind("<")
        if cut < 0 or not self._closing.startswith(text[cut:]):
            cut = len(text)
        return len(text[:cut].rstrip())

    def _resume(self, parts: list[Part]) -> None:
        body = self._held.lstrip()
        if body:
            self._to_text(parts, body)
        self._held = ""

    def _to_text(self, parts: list[Part], text: str) -> None:
        self._state, self._held = "text", ""
        parts.append(("text", text))
