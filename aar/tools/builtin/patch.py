"""The tool apply_patch: several changes in several files, all of them or none."""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic import Field

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.tools.builtin.common import (
    Change,
    StreamingFiles,
    demand_writable,
    describe_change,
    label,
    plural,
    streaming,
)
from aar.tools.builtin.patch_apply import apply_hunks
from aar.tools.builtin.patch_parse import FilePatch, parse_patch
from aar.tools.builtin.text_file import TextFile, decode
from aar.tools.schema import ToolArgs, tool_spec

DESCRIPTION: Final = """\
Change, add, delete and rename files with one patch.
When: for changes in several places or files at once; edit_file is simpler for a single place.
Inputs: patch, either
*** Begin Patch
*** Update File: src/a.py
@@ def area(w, h):
-    return w + h
+    return w * h
*** Add File: src/b.py
+print("new")
*** Delete File: old.py
*** End Patch
(*** Move to: NEW after an Update line renames), or a unified diff as git makes it.
Output: what happened to each file.
Limits: context lines must be in the file, in order; if any part does not fit, nothing is changed. No binary \
files."""

_LETTERS: Final = {"create": "A", "modify": "M", "delete": "D", "rename": "R"}


class PatchArgs(ToolArgs):
    """Arguments of apply_patch."""

    patch: str = Field(min_length=1, max_length=10_000_000, description="The patch.")


class _Tree:
    """The files as the patch leaves them, before anything is written."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._files: StreamingFiles = streaming(ctx.files)
        self.before: dict[str, bytes | None] = {}
        self.after: dict[str, bytes | None] = {}
        self.renamed: dict[str, str] = {}

    def get(self, path: str) -> bytes | None:
        name = label(self._ctx, path)
        if name not in self.before:
            there = self._ctx.files.exists(path)
            self.before[name] = self.after[name] = self._files.peek_bytes(path) if there else None
        return self.after[name]

    def put(self, path: str, data: bytes | None) -> None:
        self.get(path)
        self.after[label(self._ctx, path)] = data

    def apply(self, patch: FilePatch) -> None:
        data = self.get(patch.path)
        if patch.action == "add":
            self._add(patch, data)
        elif data is None:
            raise ToolFailure(
                ToolCategory.NOT_FOUND,
                f"The patch wants to {patch.action} {patch.path}, which does not exist.",
            )
        elif patch.action == "delete":
            self.put(patch.path, None)
        else:
            self._update(patch, data)

    def _add(self, patch: FilePatch, data: bytes | None) -> None:
        if data is not None:
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS,
                f"The patch adds {patch.path}, which exists. Use '*** Update File' or write_file.",
            )
        text = apply_hunks("", patch)
        self.put(patch.path, text.encode())

    def _update(self, patch: FilePatch, data: bytes) -> None:
        changed = data
        if patch.hunks:
            file: TextFile = decode(data, patch.path)
            changed = file.encode(apply_hunks(file.text, patch, file.newline))
        if patch.move_to is None:
            self.put(patch.path, changed)
            return
        if self.get(patch.move_to) is not None:
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS, f"{patch.path} cannot be renamed: {patch.move_to} exists."
            )
        self.put(patch.path, None)
        self.put(patch.move_to, changed)
        self.renamed[label(self._ctx, patch.move_to)] = label(self._ctx, patch.path)

    def changes(self) -> list[Change]:
        """Return what is to be done; a renamed file is one change."""
        gone = set(self.renamed.values())
        changes: list[Change] = []
        for name, after in self.after.items():
            before = self.before[name]
            if name in self.renamed:
                changes.append(Change(name, self.before[self.renamed[name]], after, self.renamed[name]))
            elif before != after and not (name in gone and after is None):
                changes.append(Change(name, before, after))
        return changes


async def apply_patch(args: PatchArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call."""
    demand_writable(ctx)
    return await asyncio.to_thread(_apply, args, ctx)


def _apply(args: PatchArgs, ctx: ToolContext) -> ToolOutcome:
    tree = _Tree(ctx)
    for patch in parse_patch(args.patch):
        tree.apply(patch)
    changes = tree.changes()
    if not changes:
        raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, "The patch changes nothing.")
    _write_all(ctx, tree)
    described = [describe_change(ctx, change) for change in changes]
    lines = [f"Patched {plural(len(changes), 'file')}:"]
    for change, _ in described:
        name = f"{change.old_path} -> {change.path}" if change.old_path else change.path
        lines.append(f"{_LETTERS[change.action]} {name} (+{change.added} -{change.removed})")
    return ToolOutcome(
        "\n".join(lines),
        file_changes=tuple(change for change, _ in described),
        diff="\n".join(diff for _, diff in described),
    )


def _write_all(ctx: ToolContext, tree: _Tree) -> None:
    """Write every file; when one fails, bring those before it back."""
    done: list[str] = []
    names = sorted(tree.after, key=lambda name: tree.after[name] is None)
    try:
        for name in names:
            if tree.before[name] != tree.after[name]:
                _put(ctx, name, tree.after[name])
                done.append(name)
    except ToolFailure as failure:
        for name in reversed(done):
            _put(ctx, name, tree.before[name])
        raise ToolFailure(failure.category, f"{failure.message} Nothing was changed.") from None


def _put(ctx: ToolContext, name: str, data: bytes | None) -> None:
    if data is None:
        ctx.files.delete(name)
    else:
        ctx.files.write_bytes(name, data)


def tools() -> list[ToolSpec]:
    """Return the tools of this family."""
    return [
        tool_spec(
            "apply_patch",
            DESCRIPTION,
            PatchArgs,
            {SideEffect.READ, SideEffect.WRITE},
            apply_patch,
            summary="Apply a patch to several files.",
            dry_run=True,
            aliases={"input": "patch", "diff": "patch", "patch_text": "patch"},
        )
    ]
