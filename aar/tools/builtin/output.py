"""``read_output``: the whole of a result that was cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.tools.builtin.terminal_text import plain_text
from aar.tools.schema import ToolArgs, tool_spec

DEFAULT_LINES = 200
MAX_MATCHES = 200
MAX_LINE_BYTES = 4000
"""Bytes of one line that are read; the rest of a longer line is skipped, with a note."""


class ReadOutputArgs(ToolArgs):
    """Arguments of ``read_output``."""

    ref: Annotated[str, Field(description="As the cut result named it (out_…).")]
    start_line: Annotated[int | None, Field(ge=1, description="First line, from 1.")] = None
    end_line: Annotated[int | None, Field(ge=1, description="Last line.")] = None
    pattern: Annotated[
        str | None,
        Field(
            max_length=1000,
            description="Only lines that hold this text; | between alternatives, case is ignored.",
        ),
    ] = None


def tools() -> list[ToolSpec]:
    """Return the tools of this module."""
    return [
        tool_spec(
            "read_output",
            "Read from the whole output of an earlier call whose result was cut. Use it with the reference "
            "(out_…) that the result named, when what you need is in the part left out. Takes a range of "
            "lines, or a text to look for, or both; without them it starts at line 1. Returns numbered "
            f"lines, at most {DEFAULT_LINES} unless a range is given and {MAX_MATCHES} matches; very long "
            "lines are cut.",
            ReadOutputArgs,
            {SideEffect.READ},
            read_output,
            summary="Read a cut result in full.",
            idempotent=True,
            concurrency="parallel",
            aliases={"reference": "ref", "output_ref": "ref", "query": "pattern"},
        )
    ]


async def read_output(args: ReadOutputArgs, context: ToolContext) -> ToolOutcome:
    """Handle ``read_output``."""
    path = context.outputs.path(args.ref)
    first = args.start_line or 1
    if args.end_line is not None and args.end_line < first:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"end_line {args.end_line} is before start_line {first}; swap them.",
        )
    # Up to 200 MB, which must not hold up the event loop.
    text, more = await asyncio.to_thread(_select, path, args, context.max_output_chars)
    return ToolOutcome(text, truncated=more)


def _select(path: Path, args: ReadOutputArgs, max_chars: int) -> tuple[str, bool]:
    """Return the wanted lines, and whether there are more of them."""
    first, last, most = _range(args)
    words = [word.lower() for word in (args.pattern or "").split("|") if word]
    shown: list[str] = []
    size = total = 0
    more = False
    for number, line in _lines(path):
        total = number
        if number < first or more or (words and not any(word in line.lower() for word in words)):
            continue
        if number > last:
            break
        size += len(line) + 10
        if len(shown) >= most or (size > max_chars and shown):
            more = True
            break
        shown.append(f"{number:>6}  {line}")
    if not shown:
        return _nothing(args, first, total), False
    text = "\n".join(shown)
    if more:
        text += f"\n[... more follows; go on with start_line {_number_of(shown[-1]) + 1} ...]"
    return text, more


def _range(args: ReadOutputArgs) -> tuple[int, float, int]:
    """Return first line, last line and the most lines to show."""
    first = args.start_line or 1
    if args.pattern:
        return first, args.end_line or float("inf"), MAX_MATCHES
    if args.end_line is not None:
        return first, args.end_line, args.end_line - first + 1
    return first, float("inf"), DEFAULT_LINES


def _nothing(args: ReadOutputArgs, first: int, total: int) -> str:
    if args.pattern:
        return f"No line holds {args.pattern!r}."
    if total == 0:
        return "The output is empty."
    return f"The output has {total} lines; line {first} is past its end."


def _number_of(numbered: str) -> int:
    return int(numbered.split(maxsplit=1)[0])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line; of a very long line only the start is held in memory."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            skipped = 0
            piece = line
            while not piece.endswith(b"\n") and (piece := file.readline(1 << 20)):
                skipped += len(piece)
            text = plain_text(line.rstrip(b"\r\n"))
            yield number, text + (f" [... {skipped} bytes of this line left out]" if skipped else "")
