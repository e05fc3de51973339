"""Going back through earlier prompts. Pure, no widgets."""

from __future__ import annotations

from collections.abc import Sequence


class Recall:
    """Walks through earlier prompts that begin with what was typed.

    What was being typed when the walk began comes back at its end.

    Args:
        entries: Earlier prompts, oldest first.
    """

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._entries = list(entries)
        self._place: int | None = None
        self._draft = ""
        self._prefix = ""
        self.shown: str | None = None
        """The prompt that stands in the text box because of the walk; ``None``: no walk."""

    def set(self, entries: Sequence[str]) -> None:
        """Take all earlier prompts, oldest first."""
        self._entries = list(entries)
        self.stop()

    def add(self, text: str) -> None:
        """Take the newest prompt, and end the walk."""
        if text and (not self._entries or self._entries[-1] != text):
            self._entries.append(text)
        self.stop()

    def stop(self) -> None:
        """End the walk."""
        self._place = self.shown = None

    def older(self, text: str, prefix: str) -> str | None:
        """Return the next older prompt, or ``None`` where there is none.

        Args:
            text: What stands in the text box.
            prefix: How a prompt must begin, when this begins the walk.
        """
        if self._place is None or self.shown != text:
            self._place, self._draft, self._prefix = len(self._entries), text, prefix
        for place in range(self._place - 1, -1, -1):
            if self._fits(self._entries[place], text):
                self._place, self.shown = place, self._entries[place]
                return self.shown
        return None

    def newer(self, text: str) -> str | None:
        """Return the next newer prompt; after the newest what was typed before; ``None``: no walk."""
        if self._place is None or self.shown != text:
            return None
        for place in range(self._place + 1, len(self._entries)):
            if self._fits(self._entries[place], text):
                self._place, self.shown = place, self._entries[place]
                return self.shown
        draft = self._draft
        self.stop()
        return draft

    def _fits(self, entry: str, text: str) -> bool:
        return entry != text and entry.startswith(self._prefix)


def search(entries: Sequence[str], query: str, limit: int = 50) -> list[str]:
    """Return the prompts that hold every word of ``query``, newest first, each once.

    Args:
        entries: Oldest first.
        query: Words; case counts only where one has a capital.
        limit: Most that are returned.
    """
    words = query.split()
    found: dict[str, None] = {}
    for entry in reversed(entries):
        folded = entry.casefold()
        if all(word in (folded if word == word.casefold() else entry) for word in words):
            found[entry] = None
            if len(found) == limit:
                break
    return list(found)
