"""The tools list_directory and find_files."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from threading import Event
from typing import Final, Literal

from pydantic import Field

from aar.protocol.late import late_pattern
from aar.protocol.ports import ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.tools.builtin import ripgrep
from aar.tools.builtin.common import FOLDER_ALIASES, folder, plural
from aar.tools.builtin.walk import glob_regex, walk
from aar.tools.schema import ToolArgs, tool_spec

MAX_ENTRIES: Final = 500
"""Entries of a folder that are listed."""

LIST_DESCRIPTION: Final = f"""\
List the files and folders directly in a folder.
When: to get to know a place in the project; use find_files to look for a name in a whole tree.
Inputs: path, a folder; default: the workspace.
Output: folders first (with a slash), then files with their sizes; links show where they lead.
Limits: at most {MAX_ENTRIES} entries; hidden and ignored files are listed too."""

FIND_DESCRIPTION: Final = """\
Find files by name in a tree.
When: you know a part of a file's name or its suffix, but not where it is.
Inputs: pattern, a glob such as *.py, src/**/*.ts or test_{a,b}.py (without a slash it matches names at any \
depth); path, the folder to search; sort, path or modified (newest first); offset and limit to page on.
Output: one path a line, relative to the workspace, and a note when there are more.
Limits: what .gitignore leaves out and .git itself are not searched; links are not followed."""


_WILDCARD: Final = late_pattern(r"[*?\[{\\]")


class ListArgs(ToolArgs):
    """Arguments of list_directory."""

    path: str = Field(default=".", description="Folder, relative to the workspace.")


class FindArgs(ToolArgs):
    """Arguments of find_files."""

    pattern: str = Field(min_length=1, max_length=1000, description="Glob, such as *.py or src/**/*.ts.")
    path: str = Field(default=".", description="Folder to search.")
    sort: Literal["path", "modified"] = Field(default="path", description="Order; modified: newest first.")
    offset: int = Field(default=0, ge=0, description="Results to skip.")
    limit: int = Field(default=200, ge=1, le=2000, description="Results to return.")


async def list_directory(args: ListArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call."""
    return await asyncio.to_thread(_list, args, ctx)


def _list(args: ListArgs, ctx: ToolContext) -> ToolOutcome:
    place = folder(ctx, args.path)
    try:
        with os.scandir(place) as found:
            rows = sorted((not entry.is_dir(follow_symlinks=False), entry.name, entry) for entry in found)
    except PermissionError:
        return ToolOutcome(f"The system refuses access to {ctx.files.display(place)}.", is_error=True)
    name = ctx.files.display(place)
    if not rows:
        return ToolOutcome(f"{name} is empty.")
    folders = sum(not is_file for is_file, *_ in rows)
    hidden = sum(entry_name.startswith(".") for _, entry_name, _ in rows)
    head = f"{name}: {plural(folders, 'folder')}, {plural(len(rows) - folders, 'file')}"
    head += f" ({hidden} hidden)" if hidden else ""
    lines = [_row(entry) for _, _, entry in rows[:MAX_ENTRIES]]
    if len(rows) > MAX_ENTRIES:
        lines.append(
            f"[{len(rows) - MAX_ENTRIES:,} more entries are not shown; use find_files to look for a name.]"
        )
    return ToolOutcome("\n".join([head, *lines]), truncated=len(rows) > MAX_ENTRIES)


def _row(entry: os.DirEntry[str]) -> str:
    try:
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            return f"{entry.name}/"
        if stat.S_ISLNK(info.st_mode):
            return f"{entry.name} -> {Path(entry.path).readlink()}"
    except OSError:
        return f"{entry.name}  (not readable)"
    if not stat.S_ISREG(info.st_mode):
        return f"{entry.name}  (no regular file)"
    return f"{entry.name}  {size_text(info.st_size)}"


def size_text(size: int) -> str:
    """Return a size for people: ``512 B``, ``1.5 KB``, ``20 MB``."""
    if size < 1000:
        return f"{size} B"
    amount, unit = size / 1000, "KB"
    for larger in ("MB", "GB"):
        if amount >= 999.5:
            amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:,.0f} {unit}"


async def find_files(args: FindArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call."""
    root = folder(ctx, args.path)
    names = await matching_files(ctx, root, args.pattern)
    names = await asyncio.to_thread(_ordered, root, names, args.sort)
    if not names:
        return ToolOutcome(
            f"No file matches {args.pattern} in {ctx.files.display(root)} (ignored files are not searched)."
        )
    page = names[args.offset : args.offset + args.limit]
    lines = [ctx.files.display(root / name) for name in page]
    end = args.offset + len(page)
    if not page:
        lines.append(f"[There are only {plural(len(names), 'match')}; offset {args.offset} is past them.]")
    elif end < len(names) or args.offset:
        more = f" Go on with offset={end}." if end < len(names) else ""
        lines.append(f"[Files {args.offset + 1}-{end} of {len(names):,}.{more}]")
    return ToolOutcome("\n".join(lines), truncated=end < len(names))


async def matching_files(ctx: ToolContext, root: Path, glob: str | None) -> list[str]:
    """Return the paths (relative to ``root``, unordered) of files that match ``glob`` and are not ignored."""
    names = _Names(None if glob is None or ripgrep.filters_fully(glob) else glob)
    # Names are taken while ripgrep still looks for more; with a path of its own each would begin with "./".
    result = await ripgrep.run(ctx, root, ["--files", "--null", *ripgrep.name_filter(glob)], names.take)
    if result is not None:
        return names.found
    walked = await walk_in_thread(root)
    if glob is None:
        return walked
    matches = glob_regex(glob).fullmatch
    return [name for name in walked if matches(name)]


class _Names:
    """Takes paths, each ended by a NUL, as they come; keeps those that match ``glob``."""

    def __init__(self, glob: str | None) -> None:
        self.found: list[str] = []
        self._rest = b""
        self._matches = None if glob is None else glob_regex(glob).fullmatch
        # Most paths fail at the part before the first wildcard already, which costs less to ask.
        self._start = "" if glob is None or "/" not in glob else _WILDCARD.split(glob.removeprefix("./"))[0]

    def take(self, piece: bytes) -> None:
        """Take the next piece of output."""
        whole, end, rest = piece.rpartition(b"\0")
        if not end:
            self._rest += piece
            return
        names = (self._rest + whole).decode("utf-8", "surrogateescape").split("\0")
        self._rest = rest
        if start := self._start:
            names = [name for name in names if name.startswith(start)]
        if (matches := self._matches) is not None:
            names = [name for name in names if matches(name)]
        self.found += names


async def walk_in_thread(root: Path) -> list[str]:
    """Walk without ripgrep, in a thread that ends when the call is cancelled."""
    stop = Event()
    try:
        return await asyncio.to_thread(lambda: list(walk(root, stop)))
    finally:
        stop.set()


def _ordered(root: Path, names: list[str], sort: str) -> list[str]:
    names.sort()
    if sort == "modified":
        names.sort(key=lambda name: _modified(root / name), reverse=True)
    return names


def _modified(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0


def tools() -> list[ToolSpec]:
    """Return the tools of this family."""
    return [
        tool_spec(
            "list_directory",
            LIST_DESCRIPTION,
            ListArgs,
            {SideEffect.READ},
            list_directory,
            summary="List a folder.",
            idempotent=True,
            concurrency="parallel",
            aliases=FOLDER_ALIASES,
        ),
        tool_spec(
            "find_files",
            FIND_DESCRIPTION,
            FindArgs,
            {SideEffect.READ},
            find_files,
            summary="Find files by a glob.",
            idempotent=True,
            concurrency="parallel",
            aliases={
                **FOLDER_ALIASES,
                "glob": "pattern",
                "glob_pattern": "pattern",
                "query": "pattern",
                "name": "pattern",
            },
        ),
    ]
