"""A tool call as an editor shows it: kind, title, places in files, differences. Takes odd arguments too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aar.protocol.errors import ToolFailure
from aar.protocol.events import ToolResult
from aar.protocol.messages import ImageBlock
from aar.safety.sanitize import sanitize
from aar.tools.builtin.describe import describe_call
from aar.transports.acp.content import text_block

KINDS = {
    "read_file": "read",
    "read_output": "read",
    "write_file": "edit",
    "edit_file": "edit",
    "apply_patch": "edit",
    "list_directory": "search",
    "find_files": "search",
    "grep": "search",
    "bash": "execute",
    "bash_output": "execute",
    "kill_shell": "execute",
    "web_fetch": "fetch",
    "web_search": "fetch",
    "todo": "think",
    "plan": "think",
}
_FENCED = frozenset({"read", "search", "execute"})
_MOST_OLD = 1_000_000
"""Characters of a file of which a difference is shown before it is written."""
_MOST_OUTPUT = 200_000
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def kind_of(tool: str) -> str:
    """Return the protocol's kind of a tool."""
    return KINDS.get(tool, "other")


def title_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return one line that says what the call does."""
    line = sanitize(describe_call(tool, arguments), keep_newlines=False)
    if tool == "bash":
        command = line[2:]
        return f"Run {command}" if "`" in command else f"Run `{command}`"
    return line


def _path(arguments: Mapping[str, Any], root: Path) -> str | None:
    given = arguments.get("path") or arguments.get("file_path")
    return absolute(given, root) if isinstance(given, str) and given.strip() and "\0" not in given else None


def absolute(path: str, root: Path) -> str:
    """Return ``path`` as the protocol wants it: absolute."""
    return str(root / Path(path).expanduser()) if path.startswith("~") else str(root / path)


def locations_of(tool: str, arguments: Mapping[str, Any], root: Path) -> list[dict[str, Any]]:
    """Return the files that a call names, before it ran."""
    if tool == "apply_patch":
        return [{"path": diff["path"]} for diff in _patch_preview(arguments, root)]
    path = _path(arguments, root)
    if path is None or kind_of(tool) not in {"read", "edit", "search"}:
        return []
    line = arguments.get("start_line")
    return [{"path": path, "line": line} if isinstance(line, int) and line > 0 else {"path": path}]


def preview(
    tool: str, arguments: Mapping[str, Any], root: Path, old_text: str | None
) -> list[dict[str, Any]]:
    """Return the difference that a call would make, as tool content; empty for calls that make none.

    Args:
        tool: Name.
        arguments: As the model gave them.
        root: The workspace.
        old_text: Content of the file that is written, as far as it is known.
    """
    if tool == "apply_patch":
        return _patch_preview(arguments, root)
    path = _path(arguments, root)
    old, new = arguments.get("old_text"), arguments.get("new_text")
    if path is None:
        return []
    if tool == "edit_file" and isinstance(old, str) and isinstance(new, str):
        replace_all = arguments.get("replace_all") is True
        return _edit_preview(path, old_text, old, new, replace_all) or [diff_content(path, old or None, new)]
    content = arguments.get("content")
    if tool == "write_file" and isinstance(content, str):
        return [diff_content(path, old_text, content)]
    return []


def _edit_preview(path: str, text: str | None, old: str, new: str, replace_all: bool) -> list[dict[str, Any]]:
    """Return the lines around the place that is changed; empty where that is not one certain place."""
    from aar.tools.builtin.diff import unified_diff

    count = text.count(old) if text and old and old != new else 0
    if not text or count == 0 or (count > 1 and not replace_all):
        return []
    return diffs_of(unified_diff(text, text.replace(old, new), path.lstrip("/")), Path("/"))[0]


def replaced_text(tool: str, arguments: Mapping[str, Any], read: Any) -> str | None:
    """Return what ``write_file`` or ``edit_file`` would change; ``read`` is `WorkspaceFiles.peek_bytes`."""
    given = arguments.get("path")
    if tool not in ("write_file", "edit_file") or not isinstance(given, str):
        return None
    try:
        data: bytes = read(given)
    except (ToolFailure, OSError):
        return None
    return None if len(data) > _MOST_OLD or b"\0" in data[:8000] else data.decode("utf-8", "replace")


def _patch_preview(arguments: Mapping[str, Any], root: Path) -> list[dict[str, Any]]:
    from aar.tools.builtin.patch_parse import parse_patch

    patch = arguments.get("patch") or arguments.get("input")
    try:
        files = parse_patch(patch) if isinstance(patch, str) else []
    except ToolFailure:
        return []
    found: list[dict[str, Any]] = []
    for file in files:
        path = absolute(file.move_to or file.path, root)
        if not file.hunks:
            found.append(diff_content(path, None if file.action == "add" else "", ""))
        for hunk in file.hunks:
            old = "\n".join(text for mark, text in hunk.lines if mark != "+")
            new = "\n".join(text for mark, text in hunk.lines if mark != "-")
            found.append(diff_content(path, None if file.action == "add" else old, new))
    return found


def diff_content(path: str, old: str | None, new: str) -> dict[str, Any]:
    """Return a difference as tool content; without ``old`` the file is new."""
    content: dict[str, Any] = {"type": "diff", "path": path, "newText": new}
    if old is not None:
        content["oldText"] = old
    return content


def diffs_of(unified: str, root: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the hunks of a unified diff as tool content, and where each begins in the new file."""
    reader = _DiffReader(root)
    for line in unified.split("\n"):
        reader.take(line)
    reader.end()
    return reader.diffs, reader.locations


class _DiffReader:
    """Reads what `aar.tools.builtin.diff.unified_diff` wrote."""

    def __init__(self, root: Path) -> None:
        self.diffs: list[dict[str, Any]] = []
        self.locations: list[dict[str, Any]] = []
        self._root = root
        self._path = ""
        self._new_file = False
        self._old: list[str] | None = None
        self._new: list[str] = []
        self._left = (0, 0)

    def take(self, line: str) -> None:
        """Take the next line."""
        if self._old is not None and line[:1] in {" ", "-", "+"} and self._left != (0, 0):
            self._body(line)
        elif line.startswith("--- "):
            self.end()
            self._new_file, self._path = line == "--- /dev/null", line[6:]
        elif line.startswith("+++ ") and line != "+++ /dev/null":
            self._path = line[6:]
        elif match := _HUNK.match(line):
            self.end()
            self._old, self._new = [], []
            counts = re.findall(r"[-+]\d+(?:,(\d+))?", line.split("@@")[1])
            self._left = (int(counts[0] or 1), int(counts[1] or 1))
            self.locations.append({"path": absolute(self._path, self._root), "line": max(int(match[2]), 1)})
        elif line.startswith("\\"):
            self._bare(self._last)

    def _body(self, line: str) -> None:
        self._last, text = line[0], line[1:] + "\n"
        old, new = self._left
        if self._old is not None and self._last != "+":
            self._old.append(text)
            old -= 1
        if self._last != "-":
            self._new.append(text)
            new -= 1
        self._left = (max(old, 0), max(new, 0))

    _last = " "

    def _bare(self, mark: str) -> None:
        """The line before has no line end."""
        for lines, marks in ((self._old, " -"), (self._new, " +")):
            if lines and mark in marks:
                lines[-1] = lines[-1].removesuffix("\n")

    def end(self) -> None:
        """Finish the present hunk."""
        if self._old is not None and self._path:
            old = None if self._new_file else "".join(self._old)
            self.diffs.append(diff_content(absolute(self._path, self._root), old, "".join(self._new)))
        self._old = None


def fenced(text: str, language: str = "") -> str:
    """Return ``text`` as a Markdown code block, whatever backticks it holds."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


def output_content(tool: str, output: str) -> list[dict[str, Any]]:
    """Return output as tool content."""
    text = sanitize(output[:_MOST_OUTPUT])
    if not text.strip():
        return []
    kind = kind_of(tool)
    shown = fenced(text, "console" if kind == "execute" else "") if kind in _FENCED else text
    return [{"type": "content", "content": text_block(shown)}]


def result_fields(result: ToolResult, root: Path) -> dict[str, Any]:
    """Return the fields of the last update of a call."""
    failed = result.is_error or result.exit_code not in (0, None)
    fields: dict[str, Any] = {"status": "failed" if failed else "completed"}
    diffs, places = diffs_of(result.diff, root) if result.diff and not result.is_error else ([], [])
    content = diffs or output_content(result.tool_name, result.output)
    images = [block for block in result.content if isinstance(block, ImageBlock)]
    content += [
        {"type": "content", "content": {"type": "image", "data": image.data, "mimeType": image.media_type}}
        for image in images
    ]
    fields["content"] = content
    if places:
        fields["locations"] = places
    raw: dict[str, Any] = {"output": sanitize(result.output[:_MOST_OUTPUT])}
    for name, value in (
        ("exitCode", result.exit_code), ("category", result.category), ("sandbox", result.sandbox),
    ):  # fmt: skip
        if value is not None:
            raw[name] = str(value) if name != "exitCode" else value
    if result.truncated:
        raw["truncated"] = True
    fields["rawOutput"] = raw
    return fields
