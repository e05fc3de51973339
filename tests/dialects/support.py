"""What the dialect tests share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aar.protocol.messages import ToolUseBlock
from aar.providers.dialects.base import ParsedText, Parser

TOOLS = ("read_file", "write_file", "edit_file", "list_directory", "grep", "bash")
ALIASES = {"Read": "read_file", "Bash": "bash", "str_replace": "edit_file"}


def run(parser: Parser, pieces: Iterable[str], **how: bool) -> tuple[str, ParsedText]:
    """Feed all pieces; return what was shown on the way, and the result."""
    shown = "".join([parser.feed(piece) for piece in pieces])
    return shown, parser.finish(**how)


def plain(calls: Iterable[ToolUseBlock]) -> list[tuple[str, dict[str, Any]]]:
    """Calls without their ids."""
    return [(call.name, call.arguments) for call in calls]
