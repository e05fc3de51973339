"""One short line for a call, as screens and logs show it. Never fails, whatever the arguments are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

MAX_CHARS: Final = 160
"""Longest line."""

_Arguments = Mapping[str, Any]
_PATCHED: Final = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)(.+)$", re.MULTILINE)


def describe_call(spec_name: str, arguments: _Arguments) -> str:
    """Return what a call does, such as ``Read src/a.py:1-40``, ``Edit src/a.py`` or ``$ pytest -q``."""
    describe = _LINES.get(spec_name)
    text = _other(spec_name, arguments) if describe is None else describe(arguments)
    line = " ".join(text.split())
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"


def _value(arguments: _Arguments, *names: str, default: str = "") -> str:
    found = next((arguments[name] for name in names if arguments.get(name) not in (None, "")), default)
    return str(found)


def _path(arguments: _Arguments, default: str = "?") -> str:
    return _value(arguments, "path", "file_path", "filename", default=default)


def _read(arguments: _Arguments) -> str:
    start, end = arguments.get("start_line"), arguments.get("end_line")
    span = "" if start is None and end is None else f":{start or 1}-{end or ''}"
    return f"Read {_path(arguments)}{span}"


def _in_folder(arguments: _Arguments) -> str:
    place = _path(arguments, ".")
    return "" if place == "." else f" in {place}"


def _grep(arguments: _Arguments) -> str:
    glob = _value(arguments, "glob")
    only = f" ({glob})" if glob else ""
    return f"Search {_value(arguments, 'pattern', 'query', default='?')!r}{_in_folder(arguments)}{only}"


def _patch(arguments: _Arguments) -> str:
    names = dict.fromkeys(_PATCHED.findall(_value(arguments, "patch", "input")))
    shown = [name.strip() for name in names if name.strip() != "/dev/null"]
    return "Patch " + (
        ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "") or "?"
    )


def _items(noun: str) -> Callable[[_Arguments], str]:
    def describe(arguments: _Arguments) -> str:
        items = arguments.get("items") or arguments.get("todos")
        count = len(cast("Sequence[object]", items)) if isinstance(items, list | tuple) else 0
        return f"Update the {noun} ({count} items)"

    return describe


def _bash(arguments: _Arguments) -> str:
    mark = "&" if arguments.get("background") is True else "$"
    return f"{mark} {_value(arguments, 'command', default='?')}"


def _shell_id(arguments: _Arguments) -> str:
    return _value(arguments, "shell_id", "id", "bash_id", default="?")


_LINES: Final[dict[str, Callable[[_Arguments], str]]] = {
    "read_file": _read,
    "write_file": lambda arguments: f"Write {_path(arguments)}",
    "edit_file": lambda arguments: f"Edit {_path(arguments)}",
    "apply_patch": _patch,
    "list_directory": lambda arguments: f"List {_path(arguments, '.')}",
    "find_files": lambda arguments: (
        f"Find {_value(arguments, 'pattern', default='?')}{_in_folder(arguments)}"
    ),
    "grep": _grep,
    "bash": _bash,
    "bash_output": lambda arguments: f"Output of shell {_shell_id(arguments)}",
    "kill_shell": lambda arguments: f"Kill shell {_shell_id(arguments)}",
    "read_output": lambda arguments: (
        f"Read output {_value(arguments, 'reference', 'output_ref', default='?')}"
    ),
    "web_fetch": lambda arguments: f"Fetch {_value(arguments, 'url', default='?')}",
    "web_search": lambda arguments: f"Search the web for {_value(arguments, 'query', default='?')!r}",
    "todo": _items("todo list"),
    "plan": _items("plan"),
    "ask_user": lambda arguments: f"Ask: {_value(arguments, 'question', default='?')}",
}


def _other(name: str, arguments: _Arguments) -> str:
    given = ", ".join(f"{key}={str(value)[:40]!r}" for key, value in list(arguments.items())[:4])
    return f"{name}({given})"
