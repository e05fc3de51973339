"""The tool grep: ripgrep where it is there, else a search of our own with the same results."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from pydantic import Field, model_validator

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.tools.builtin import ripgrep, search_engines
from aar.tools.builtin.common import FOLDER_ALIASES, folder, plural, streaming
from aar.tools.builtin.search_engines import Line, Query
from aar.tools.builtin.walk import glob_regex
from aar.tools.schema import ToolArgs, tool_spec

DESCRIPTION: Final = """\
Search the content of files with a regular expression.
When: to find where a name, message or pattern occurs, before you read whole files.
Inputs: pattern, a regular expression for one line (literal=true takes it as plain text); path, a folder or \
file; glob to search only some files (*.py, src/**/*.ts); ignore_case; context, lines shown around a match; \
files_only for file names with counts; offset and limit to page on.
Output: for each file its path and the matching lines with numbers; a note when there are more.
Limits: what .gitignore leaves out, binary files and files with secrets are not searched; long lines are \
cut."""


class GrepArgs(ToolArgs):
    """Arguments of grep."""

    pattern: str = Field(
        min_length=1, max_length=10_000, description="Regular expression, matched in one line."
    )
    path: str = Field(default=".", description="Folder or file to search.")
    glob: str | None = Field(
        default=None, max_length=1000, description="Only files like this: *.py, src/**/*.ts."
    )
    ignore_case: bool = Field(default=False, description="Ignore upper and lower case.")
    literal: bool = Field(default=False, description="Take the pattern as plain text.")
    context: int = Field(default=0, ge=0, le=20, description="Lines shown before and after each match.")
    files_only: bool = Field(default=False, description="Only names of files, with counts.")
    offset: int = Field(default=0, ge=0, description="Matches (or files) to skip.")
    limit: int = Field(default=100, ge=1, le=1000, description="Matches (or files) to return.")

    @model_validator(mode="before")
    @classmethod
    def _accept_foreign(cls, data: Any) -> Any:
        """Take the flags that other assistants' search tools know."""
        if not isinstance(data, dict):
            return data
        given = dict(cast("dict[str, Any]", data))
        around = [given.pop(name, None) for name in ("-A", "-B", "-C")]
        lines = [value for value in around if isinstance(value, int)]
        if lines:
            given.setdefault("context", min(max(lines), 20))
        given.pop("-n", None)
        if "-i" in given:
            given.setdefault("ignore_case", given.pop("-i"))
        mode = given.pop("output_mode", None)
        if mode in ("files_with_matches", "count"):
            given.setdefault("files_only", True)
        sensitive = given.pop("case_sensitive", None)
        if isinstance(sensitive, bool):
            given.setdefault("ignore_case", not sensitive)
        return given


@dataclass(frozen=True, slots=True)
class _Page:
    """Files of one page in order, each with how many of its matches to skip and to take."""

    files: dict[str, tuple[int, int]]
    total: int
    end: int


async def grep(args: GrepArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call."""
    if "\n" in args.pattern or (not args.literal and "\\n" in args.pattern.replace("\\\\", "")):
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS, "A pattern is matched within one line and cannot hold a newline."
        )
    root, only = _target(args, ctx)
    query = Query(root, args.pattern, args.glob, only, args.ignore_case, args.literal, args.context)
    engine = search_engines.Plain(query)
    if ripgrep.program(ctx.workspace) is not None:
        engine = search_engines.Ripgrep(query, ctx)
    counts = await engine.counts()
    if counts is None:
        engine = search_engines.Plain(query)
        counts = await engine.counts() or {}
    counts, hidden = await asyncio.to_thread(_visible, args, ctx, root, counts)
    if not counts:
        where = ctx.files.display(root / only if only else root)
        where = "this folder" if where == "." else where
        return ToolOutcome(f"No match for {args.pattern!r} in {where}.{_hidden_note(hidden)}")
    if args.files_only:
        return _files(args, ctx, root, counts, hidden)
    page = _page(counts, args.offset, args.limit)
    lines = await engine.lines({name: skip + take for name, (skip, take) in page.files.items()})
    return _shown(args, ctx, root, page, lines, len(counts), hidden)


def _target(args: GrepArgs, ctx: ToolContext) -> tuple[Path, str | None]:
    """Return the folder to search, and the one file in it when a file was named."""
    resolved = ctx.files.resolve(args.path)
    if not resolved.is_file():
        return folder(ctx, args.path), None
    if not streaming(ctx.files).may_read(resolved):
        raise ToolFailure(ToolCategory.BLOCKED, f"{args.path} may hold secrets and is not searched.")
    return resolved.parent, resolved.name


def _visible(
    args: GrepArgs, ctx: ToolContext, root: Path, counts: dict[str, int]
) -> tuple[dict[str, int], int]:
    """Sort by path, leave out what the glob does not match and what may not be read."""
    matches = glob_regex(args.glob).fullmatch if args.glob else None
    names = sorted(name for name in counts if matches is None or matches(name))
    may_read = streaming(ctx.files).may_read
    visible = {name: counts[name] for name in names if may_read(root / name)}
    return visible, len(names) - len(visible)


def _hidden_note(hidden: int) -> str:
    return f" ({plural(hidden, 'file')} that may hold secrets left out.)" if hidden else ""


def _page(counts: dict[str, int], offset: int, limit: int) -> _Page:
    files: dict[str, tuple[int, int]] = {}
    position = 0
    for name, count in counts.items():
        first, last = max(offset - position, 0), min(offset + limit - position, count)
        if first < last:
            files[name] = (first, last - first)
        position += count
    return _Page(files, position, min(offset + limit, position))


def _files(args: GrepArgs, ctx: ToolContext, root: Path, counts: dict[str, int], hidden: int) -> ToolOutcome:
    names = list(counts)[args.offset : args.offset + args.limit]
    end = args.offset + len(names)
    lines = [f"{ctx.files.display(root / name)}: {plural(counts[name], 'match')}" for name in names]
    more = f" Go on with offset={end}." if end < len(counts) else ""
    lines.append(f"[{plural(len(counts), 'file')}.{more}]{_hidden_note(hidden)}")
    return ToolOutcome("\n".join(lines), truncated=bool(more))


def _shown(
    args: GrepArgs,
    ctx: ToolContext,
    root: Path,
    page: _Page,
    found: dict[str, list[Line]],
    files: int,
    hidden: int,
) -> ToolOutcome:
    blocks: list[str] = []
    for name, (skip, take) in page.files.items():
        lines = _chosen(found.get(name, []), skip, take, args.context)
        blocks.append("\n".join([ctx.files.display(root / name), *_numbered(lines)]))
    total = plural(page.total, "match")
    if not page.files:
        note = f"[There are only {total}; offset {args.offset} is past them.]"
    elif page.end < page.total or args.offset:
        more = f" Go on with offset={page.end}." if page.end < page.total else ""
        note = f"[Matches {args.offset + 1}-{page.end} of {page.total:,} in {plural(files, 'file')}.{more}]"
    else:
        note = f"[{total} in {plural(files, 'file')}.]"
    return ToolOutcome("\n".join([*blocks, note + _hidden_note(hidden)]), truncated=page.end < page.total)


def _chosen(lines: list[Line], skip: int, take: int, context: int) -> list[Line]:
    numbers = [line.number for line in lines if line.match][skip : skip + take]
    wanted = set(numbers)
    near = {number + step for number in numbers for step in range(-context, context + 1)}
    return [line for line in lines if line.number in (wanted if line.match else near)]


def _numbered(lines: list[Line]) -> list[str]:
    shown: list[str] = []
    previous = None
    for line in lines:
        if previous is not None and line.number > previous + 1 and not all(each.match for each in lines):
            shown.append("  --")
        shown.append(f"{line.number:6d}{':' if line.match else '-'} {line.text}")
        previous = line.number
    return shown


def tools() -> list[ToolSpec]:
    """Return the tools of this family."""
    return [
        tool_spec(
            "grep",
            DESCRIPTION,
            GrepArgs,
            {SideEffect.READ},
            grep,
            summary="Search file contents with a regular expression.",
            idempotent=True,
            concurrency="parallel",
            aliases={
                **FOLDER_ALIASES,
                "query": "pattern",
                "regex": "pattern",
                "include": "glob",
                "include_pattern": "glob",
                "file_pattern": "glob",
                "head_limit": "limit",
                "max_results": "limit",
                "file_path": "path",
            },
        )
    ]
