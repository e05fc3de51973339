"""Text from outside on one line of the screen."""

from __future__ import annotations

from aar.safety.sanitize import sanitize


def one_line(text: str) -> str:
    """Return ``text`` harmless and without line ends; a tab, whose width nobody knows, becomes a space."""
    return sanitize(text.replace("\t", " "), keep_newlines=False)
