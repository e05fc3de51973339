"""What is told about an open question: every argument, word for word. Pure, no widgets.

Nothing is cut here: what is long is scrolled. All text is made safe to show (`sanitize`).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from aar.safety.sanitize import sanitize
from aar.transports.approval_text import beside_diff, diff_lines

if TYPE_CHECKING:
    from aar.protocol.events import ApprovalRequest

ASK_TOOL = "ask_user"
"""Tool name of a request that is a question of the model."""

Kind = Literal["text", "name", "add", "remove", "mark", "command", "option"]
_TITLES = {
    "bash": "Run a command",
    "write_file": "Write a file",
    "edit_file": "Edit a file",
    "apply_patch": "Apply a patch",
    "web_fetch": "Fetch a page",
    "web_search": "Search the web",
    "read_file": "Read a file",
}
_PATHS = ("path", "file_path", "url")
_USUAL: Mapping[str, Mapping[str, object]] = {
    "bash": {"background": False},
    "edit_file": {"replace_all": False},
    "write_file": {"allow_shrink": False},
    "web_fetch": {"start": 0},
}
"""Arguments of tools that say nothing while they have these values."""
_TEXTS = {"bash": "command", "write_file": "content", "edit_file": "new_text", "apply_patch": "patch"}
"""The argument of a tool that a user edits as text."""
_TAB = 4
_MOST_HEAD = 60
"""Characters of a path or address that stand in the headline; more of them are read on as an argument."""
_MOST_REASON = 100
"""Characters that are told of a reason: it may quote a whole command, which stands above it."""
_MOST_REASONS = 3
"""Reasons that are told; a loop of shell has a dozen that say the same. ``/why`` has all of them."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is told, not yet wrapped."""

    text: str
    kind: Kind = "text"


def is_question(request: ApprovalRequest) -> bool:
    """Tell whether the model asks something, rather than wants to do something."""
    return request.tool_name == ASK_TOOL


def headline(request: ApprovalRequest) -> str:
    """Return what is asked in a few words, with the tool and the file or address."""
    if is_question(request):
        return "The model asks"
    name = sanitize(request.tool_name, keep_newlines=False)
    title = _TITLES.get(request.tool_name)
    target = _target(request.arguments)
    words = f"{title} ({name})" if title else f"Use {name}"
    return words + (f": {safe(request.arguments[target])}" if target is not None else "")


def _target(arguments: Mapping[str, Any]) -> str | None:
    """Return the name of the argument that stands in the headline; a long one stands with the others."""
    found = next((key for key in _PATHS if isinstance(arguments.get(key), str)), None)
    return None if found is None or len(arguments[found]) > _MOST_HEAD else found


def reasons(request: ApprovalRequest) -> str:
    """Return why it is asked: the rule with its layer, and the reasons."""
    rule, told = request.why.get("rule"), request.why.get("reasons")
    parts: list[str] = []
    if isinstance(rule, dict):
        text, layer = map(cast("Mapping[str, object]", rule).get, ("text", "layer"))
        parts.append(f"rule {text} ({layer})")
    listed = map(str, cast("list[object]", told)) if isinstance(told, list) else ()
    parts += [reason for reason in listed if not parts or not reason.startswith("rule ")]
    if len(parts) > _MOST_REASONS + 1:
        parts = [*parts[:_MOST_REASONS], f"and {len(parts) - _MOST_REASONS} reasons more"]
    return sanitize("; ".join(map(_short, parts)), keep_newlines=False)


def _short(reason: str) -> str:
    half = _MOST_REASON // 2
    return reason if len(reason) <= _MOST_REASON else f"{reason[:half]} … {reason[-half:]}"


def wall(request: ApprovalRequest) -> str:
    """Return the wall that it would run in, in words."""
    if request.wall is None:
        return ""
    if request.wall == "none":
        return "no wall: it could reach all your files and the network"
    return f"inside the wall ({sanitize(request.wall, keep_newlines=False)})"


def options(request: ApprovalRequest) -> list[str]:
    """Return the answers that a question offers, as the model wrote them."""
    offered = request.arguments.get("options")
    return list(map(str, cast("list[object]", offered))) if isinstance(offered, list) else []


def lines(request: ApprovalRequest) -> list[Line]:
    """Return everything about the arguments of ``request`` that the headline does not say."""
    arguments = beside_diff(request)
    if is_question(request):
        return [Line(text) for text in _split(str(arguments.get("question", "")))]
    told = list(_told(request.tool_name, arguments))
    if request.diff:
        told += [*([Line("")] if told else []), *_patch("\n".join(diff_lines(request)))]
    return told or [Line("no arguments", "mark")]


def _told(tool: str, arguments: Mapping[str, Any]) -> Iterator[Line]:
    target, usual = _target(arguments), _USUAL.get(tool, {})
    left = {
        name: value
        for name, value in arguments.items()
        if name != target and not (name in usual and value is usual[name])
    }
    if tool == "bash" and isinstance(left.get("command"), str):
        for number, text in enumerate(_split(left.pop("command"))):
            yield Line(("$ " if number == 0 else "  ") + text, "command")
        yield from _others(left)
    elif (
        tool == "edit_file"
        and isinstance(left.get("old_text"), str)
        and isinstance(left.get("new_text"), str)
    ):
        old, new = left.pop("old_text"), left.pop("new_text")
        yield from _others(left)
        yield from _difference(old, new)
    elif tool == "write_file" and isinstance(left.get("content"), str):
        content = left.pop("content")
        yield from _others(left)
        yield from _content(content)
    elif tool == "apply_patch" and isinstance(left.get("patch"), str):
        patch = left.pop("patch")
        yield from _others(left)
        yield from _patch(patch)
    else:
        yield from _others(left)


def _others(arguments: Mapping[str, Any]) -> Iterator[Line]:
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        shown = _split(text)
        label = sanitize(str(name), keep_newlines=False)
        if len(shown) == 1:
            yield Line(f"{label}: {shown[0]}", "name")
        else:
            yield Line(f"{label}:", "name")
            yield from (Line(f"  {part}") for part in shown)


def _content(text: str) -> Iterator[Line]:
    """Return a whole file; the end of its last line is no line of its own."""
    if not text:
        yield Line("an empty file", "mark")
        return
    yield from (Line(f"+ {part}", "add") for part in _split(text.removesuffix("\n")))
    if not text.endswith("\n"):
        yield Line("no line end after the last line", "mark")


def _difference(old: str, new: str) -> Iterator[Line]:
    """Return both texts whole, line by line: what stays, what goes, what comes."""
    if old.endswith("\n") and new.endswith("\n"):
        old, new = old[:-1], new[:-1]
    before, after = old.split("\n"), new.split("\n")
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=len(before) + len(after) > 2000)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag == "equal":
            yield from (Line(f"  {safe(text)}") for text in before[first:last])
        else:
            yield from (Line(f"- {safe(text)}", "remove") for text in before[first:last])
            yield from (Line(f"+ {safe(text)}", "add") for text in after[start:end])


def _patch(text: str) -> Iterator[Line]:
    for part in _split(text):
        kind: Kind = "text"
        if part.startswith(("***", "@@", "---", "+++", "diff ")):
            kind = "mark"
        elif part.startswith("+"):
            kind = "add"
        elif part.startswith("-"):
            kind = "remove"
        yield Line(part, kind)


def safe(text: str) -> str:
    """Return one line made safe to show, tabs as spaces."""
    return sanitize(text, keep_newlines=False).expandtabs(_TAB)


def _split(text: str) -> list[str]:
    return [safe(part) for part in text.split("\n")]


def editable(request: ApprovalRequest) -> str:
    """Return what can be edited: a command, the new text of a file or a patch as it is, else JSON.

    What a text box could not show as it is stands there as an escape of JSON.
    """
    name = _text_argument(request)
    if name is not None:
        return request.arguments[name]
    text = json.dumps(dict(request.arguments), ensure_ascii=False, indent=2)
    if sanitize(text) != text:
        text = json.dumps(dict(request.arguments), ensure_ascii=True, indent=2).replace("\x7f", "\\u007f")
    return text


def edited(request: ApprovalRequest, text: str) -> dict[str, Any]:
    """Return the arguments that ``text``, from `editable`, stands for now.

    Raises:
        ValueError: It is not a JSON object; the message says where.
    """
    name = _text_argument(request)
    if name is not None:
        if name == "command" and not text.strip():
            raise ValueError("The command is empty.")
        return {**request.arguments, name: text}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"This is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ValueError("The arguments must be a JSON object in { }.")
    return cast("dict[str, Any]", value)


def _text_argument(request: ApprovalRequest) -> str | None:
    """Return the argument that is a text to edit as it is; ``None``: a text box would not show it so."""
    name = _TEXTS.get(request.tool_name, "")
    text = request.arguments.get(name)
    if not isinstance(text, str) or sanitize(text) != text or "\r" in text:
        return None
    return None if name == "command" and "\t" in text else name
