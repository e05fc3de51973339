"""Chips: short labels in the prompt that stand for long pastes and for images.

A prompt is edited as one text. A label such as ``[pasted 2,000 lines]`` stands in it for what it holds; when
the prompt is sent, pasted text takes the place of its label and images go beside the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

CHIP_LINES = 20
"""A paste of more lines than this becomes a chip."""
CHIP_CHARS = 4000
"""A paste of more characters than this becomes a chip."""


@dataclass(frozen=True, slots=True)
class PastedText:
    """A long paste."""

    text: str


@dataclass(frozen=True, slots=True)
class PastedImage:
    """An image: ``data`` is base64 of a file of type ``media_type``."""

    name: str
    media_type: str
    data: str


Chip = PastedText | PastedImage


@dataclass(slots=True)
class Chips:
    """The chips of one prompt by label; they stay known while the prompt lives, so that undo finds them."""

    by_label: dict[str, Chip] = field(default_factory=dict[str, Chip])

    def add(self, chip: Chip) -> str:
        """Keep ``chip`` and return its label, which no other chip has."""
        wanted = _label(chip)
        label, number = f"[{wanted}]", 1
        while label in self.by_label and self.by_label[label] != chip:
            number += 1
            label = f"[{wanted} #{number}]"
        self.by_label[label] = chip
        return label

    def _pattern(self) -> re.Pattern[str] | None:
        return re.compile("|".join(map(re.escape, self.by_label))) if self.by_label else None

    def spans(self, text: str) -> Iterator[tuple[int, int, Chip]]:
        """Yield where in ``text`` chips stand: start, end, chip."""
        pattern = self._pattern()
        for match in pattern.finditer(text) if pattern else ():
            yield match.start(), match.end(), self.by_label[match[0]]

    def expand(self, text: str) -> tuple[str, tuple[PastedImage, ...]]:
        """Return ``text`` with all pasted text in place, and its images in order."""
        pieces: list[str] = []
        images: list[PastedImage] = []
        done = 0
        for start, end, chip in self.spans(text):
            if isinstance(chip, PastedImage):
                images.append(chip)
            else:
                pieces += [text[done:start], chip.text]
                done = end
        return "".join([*pieces, text[done:]]), tuple(dict.fromkeys(images))

    def used(self, text: str) -> Chips:
        """Return only the chips that stand in ``text``."""
        return Chips({text[start:end]: chip for start, end, chip in self.spans(text)})

    def dump(self) -> dict[str, Any]:
        """Return the chips as JSON data."""
        return {
            label: {"text": chip.text}
            if isinstance(chip, PastedText)
            else {"image": chip.name, "media_type": chip.media_type, "data": chip.data}
            for label, chip in self.by_label.items()
        }

    @classmethod
    def load(cls, data: object) -> Chips:
        """Return the chips of `dump`; what is not understood is left out."""
        chips = cls()
        items = cast("dict[str, object]", data) if isinstance(data, dict) else dict[str, object]()
        for label, item in items.items():
            chip = _loaded(item)
            if chip is not None:
                chips.by_label[label] = chip
        return chips


def _loaded(item: object) -> Chip | None:
    if not isinstance(item, dict):
        return None
    values = cast("Mapping[str, object]", item)
    text, name, media_type, data = map(values.get, ("text", "image", "media_type", "data"))
    if isinstance(text, str):
        return PastedText(text)
    if isinstance(name, str) and isinstance(media_type, str) and isinstance(data, str):
        return PastedImage(name, media_type, data)
    return None


def _label(chip: Chip) -> str:
    if isinstance(chip, PastedImage):
        return f"image {re.sub(r'[^-+.,()@ 0-9A-Za-z_]', '_', chip.name)[:60]}"
    lines = chip.text.count("\n") + (not chip.text.endswith("\n"))
    return f"pasted {lines:,} lines" if lines > 1 else f"pasted {len(chip.text):,} characters"


def wants_chip(text: str) -> bool:
    """Tell whether a paste is too long, or too strange, to stand in the prompt as it is."""
    from aar.safety.sanitize import sanitize

    return len(text) > CHIP_CHARS or text.count("\n") >= CHIP_LINES or sanitize(text) != text


def normal_lines(text: str) -> str:
    r"""Return ``text`` with ``\n`` as its only line end (terminals send ``\r`` in a paste)."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
