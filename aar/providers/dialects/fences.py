"""Fenced blocks of Markdown, as models write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aar.protocol.late import late_pattern

_OPEN = late_pattern(r"[ \t]{0,3}(`{3,}|~{3,})[ \t]*([^`\r\n]*?)[ \t]*\r?$")

_CLOSE = late_pattern(r"[ \t]*(`{3,}|~{3,})[ \t]*\r?$")


@dataclass(frozen=True, slots=True)
class Fence:
    """An opening fence: its marks and what stands behind them."""

    marks: str
    info: str

    @property
    def language(self) -> str:
        """First word of the info string, in lower case."""
        return re.split(r"[\s:{=]", self.info, maxsplit=1)[0].lower()


def opening(line: str) -> Fence | None:
    """Read ``line`` (without its line feed) as a fence, or return ``None``."""
    match = _OPEN.match(line)
    return Fence(match[1], match[2]) if match else None


def closes(line: str, fence: Fence) -> bool:
    """Tell whether ``line`` can end the block that ``fence`` began."""
    match = _CLOSE.match(line)
    return match is not None and match[1].startswith(fence.marks)


def enough(content: str) -> str:
    """Return backticks that no line of ``content`` can close."""
    runs = re.findall(r"^[ \t]*(`{3,})", content, re.MULTILINE)
    return "`" * max([3, *(len(run) + 1 for run in runs)])
