"""The tools read_file and write_file."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Final, cast

from pydantic import Field, model_validator

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.messages import ImageBlock
from aar.protocol.ports import ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.tools.builtin.common import (
    PATH_ALIASES,
    Change,
    demand_writable,
    describe_change,
    label,
    numbered,
    plural,
    streaming,
)
from aar.tools.builtin.read import MAX_LINE, PREVIEW_LINES, Reading, read_lines
from aar.tools.builtin.text_file import SNIFF_BYTES, TextFile, decode, is_binary
from aar.tools.schema import ToolArgs, tool_spec

MAX_IMAGE_BYTES: Final = 5 * 1024 * 1024
"""Largest image that is shown to the model."""
MAX_WRITE_CHARS: Final = 10_000_000
"""Longest content that write_file takes."""
_NOTE_ROOM: Final = 400

READ_DESCRIPTION: Final = f"""\
Read a text file, or look at an image.
When: before you change a file, and whenever its exact content matters.
Inputs: path; start_line and end_line (from 1, inclusive) for a part of a long file.
Output: the lines, each as its number, a tab and its text; a PNG, JPEG, GIF or WebP image is shown as such.
Limits: without a range the first {PREVIEW_LINES:,} lines; a note tells how to read on. Lines longer than \
{MAX_LINE:,} characters are cut. Binary files and files with secrets are refused."""

WRITE_DESCRIPTION: Final = """\
Create a file, or replace the whole content of one.
When: for new files and for complete rewrites; use edit_file for a change in part of a file.
Inputs: path; content, the complete text of the file.
Output: whether the file was created or overwritten, and how many lines it has.
Limits: parent folders are made. Line ends and byte order mark of an existing file are kept. A rewrite that \
drops most of a long file is refused unless allow_shrink is set. A file that changed since you read it is \
refused."""


class ReadArgs(ToolArgs):
    """Arguments of read_file."""

    path: str = Field(description="File to read, relative to the workspace.")
    start_line: int | None = Field(default=None, ge=1, description="First line, from 1.")
    end_line: int | None = Field(default=None, ge=1, description="Last line, inclusive.")

    @model_validator(mode="before")
    @classmethod
    def _accept_foreign(cls, data: Any) -> Any:
        """Take ``offset`` and ``limit`` (first line, number of lines) of other assistants' tools."""
        if not isinstance(data, dict):
            return data
        given = dict(cast("dict[str, Any]", data))
        offset, limit = given.pop("offset", None), given.pop("limit", None)
        if isinstance(offset, int):
            given.setdefault("start_line", max(offset, 1))
        if isinstance(limit, int) and limit > 0:
            start = given.get("start_line")
            given.setdefault("end_line", (start if isinstance(start, int) else 1) + limit - 1)
        return given

    @model_validator(mode="after")
    def _check_order(self) -> ReadArgs:
        if self.start_line and self.end_line and self.end_line < self.start_line:
            raise ValueError("end_line must not be smaller than start_line")
        return self


class WriteArgs(ToolArgs):
    """Arguments of write_file."""

    path: str = Field(description="File to write, relative to the workspace.")
    content: str = Field(description="The complete new content.")
    allow_shrink: bool = Field(default=False, description="Write although most of a long file goes away.")


async def read_file(args: ReadArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call. Runs in a thread: a slow disk or a large file must not stop the screen."""
    return await asyncio.to_thread(_read, args, ctx)


def _read(args: ReadArgs, ctx: ToolContext) -> ToolOutcome:
    name = label(ctx, args.path)
    files = streaming(ctx.files)
    start = args.start_line or 1
    end = args.end_line
    if args.start_line is None and end is None:
        end = PREVIEW_LINES
    with files.open_binary(args.path) as file:
        reading = read_lines(file, start, end, max(ctx.max_output_chars - _NOTE_ROOM, 1000))
        if reading.image is not None:
            file.seek(0)
            return _image(name, reading, file.read(MAX_IMAGE_BYTES + 1))
    if reading.binary is not None:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"{name} is a binary file ({reading.size:,} bytes, {reading.binary}), not text. "
            "Use a command to look into it.",
        )
    files.remember(args.path, reading.stamp)
    return _shown(name, reading, args)


def _image(name: str, reading: Reading, data: bytes) -> ToolOutcome:
    media_type = cast("str", reading.image)
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"{name} is an image of {reading.size:,} bytes; at most {MAX_IMAGE_BYTES:,} can be shown. "
            "Make a smaller copy with a command.",
        )
    block = ImageBlock(media_type=media_type, data=base64.b64encode(data).decode(), name=name)
    return ToolOutcome(f"{name}: image ({media_type}, {len(data):,} bytes), shown below.", images=(block,))


def _shown(name: str, reading: Reading, args: ReadArgs) -> ToolOutcome:
    if reading.size == 0 or reading.total == 0:
        return ToolOutcome(f"{name} is empty.")
    if reading.first > reading.total:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"{name} has only {plural(reading.total, 'line')}; start_line {reading.first} is past its end.",
        )
    last = reading.first + len(reading.lines) - 1
    whole = reading.first == 1 and last == reading.total
    notes = _notes(name, reading, last, asked=args.end_line if not reading.full else None)
    body = numbered(reading.lines, reading.first)
    return ToolOutcome("\n".join([body, *notes]), truncated=not whole and bool(notes))


def _notes(name: str, reading: Reading, last: int, asked: int | None) -> list[str]:
    notes: list[str] = []
    if last < reading.total and asked is None:
        notes.append(
            f"[{name} has {reading.total:,} lines; shown are {reading.first}-{last}. "
            f"Go on with start_line={last + 1}, or use grep to find the part you need.]"
        )
    if reading.clipped:
        notes.append(f"[{plural(reading.clipped, 'line')} cut at {MAX_LINE:,} characters.]")
    if reading.codec != "utf-8":
        notes.append(f"[The file is {reading.codec} text, not UTF-8; it keeps that when you edit it.]")
    if reading.crlf:
        notes.append("[Lines end with CR LF; that is kept when you edit it.]")
    return notes


def drops_most(old: str, new: str) -> bool:
    """Tell whether ``new`` is what a model writes that left out most of a long file.

    That is: ``old`` has at least 40 lines and ``new`` less than 40 % as many.
    """
    before, after = len(old.splitlines()), len(new.splitlines())
    return before >= 40 and after < 0.4 * before


async def write_file(args: WriteArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call."""
    demand_writable(ctx)
    if len(args.content) > MAX_WRITE_CHARS:
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"content is longer than {MAX_WRITE_CHARS:,} characters. Write it with a command, or in parts.",
        )
    return await asyncio.to_thread(_write, args, ctx)


def _write(args: WriteArgs, ctx: ToolContext) -> ToolOutcome:
    name = label(ctx, args.path)
    before = streaming(ctx.files).peek_bytes(args.path) if ctx.files.exists(args.path) else None
    after = args.content.encode() if before is None else _replacing(name, before, args)
    if after == before:
        ctx.files.write_bytes(args.path, after)
        return ToolOutcome(f"{name} already has this content; nothing changed.")
    ctx.files.write_bytes(args.path, after)
    change, diff = describe_change(ctx, Change(name, before, after))
    lines = plural(len(args.content.splitlines()), "line")
    what = f"Created {name}" if before is None else f"Overwrote {name}"
    counts = "" if before is None else f", +{change.added} -{change.removed}"
    return ToolOutcome(f"{what} ({lines}{counts}).", file_changes=(change,), diff=diff)


def _replacing(name: str, before: bytes, args: WriteArgs) -> bytes:
    """Return the new bytes in the manner of the old file."""
    if is_binary(before[:SNIFF_BYTES]):
        return args.content.encode()
    old = decode(before, name)
    if not args.allow_shrink and drops_most(old.text, args.content):
        was, now = len(old.text.splitlines()), len(args.content.splitlines())
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"{name} has {was} lines and the new content only {now}, so most of it would be lost. "
            "Use edit_file to change a part, write the complete file, or set allow_shrink if the rest "
            "is really to go.",
        )
    content = args.content
    if old.newline == "\r\n":
        content = content.replace("\r\n", "\n").replace("\n", "\r\n")
    content = content.removeprefix("\ufeff") if old.mark else content
    try:
        return old.encode(content)
    except ToolFailure:
        return TextFile(content).encode(content)


def tools() -> list[ToolSpec]:
    """Return the tools of this family."""
    return [
        tool_spec(
            "read_file",
            READ_DESCRIPTION,
            ReadArgs,
            {SideEffect.READ},
            read_file,
            summary="Read a file with line numbers, or view an image.",
            idempotent=True,
            concurrency="parallel",
            aliases={
                **PATH_ALIASES,
                "start": "start_line",
                "end": "end_line",
                "start_line_one_indexed": "start_line",
                "end_line_one_indexed_inclusive": "end_line",
            },
        ),
        tool_spec(
            "write_file",
            WRITE_DESCRIPTION,
            WriteArgs,
            {SideEffect.READ, SideEffect.WRITE},
            write_file,
            summary="Create a file or replace its whole content.",
            dry_run=True,
            idempotent=True,
            aliases={
                **PATH_ALIASES,
                "file_text": "content",
                "contents": "content",
                "text": "content",
                "code": "content",
            },
        ),
    ]
