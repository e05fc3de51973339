"""What a tool call does, in words: ``Read src/a.py:10-40``, ``Ran pytest -q``, ``Edited a.py``.

Never fails, whatever a model wrote as arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from aar.transports.tui.transcript.steps import AT_WORK, DONE
from aar.transports.tui.transcript.text import clean_line

if TYPE_CHECKING:
    from aar.transports.tui.blocks import ToolBlock

MAX_CHARS = 400
_Arguments = Mapping[str, Any]
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Title:
    """A call in words; ``verb`` is in the tense that fits its state."""

    verb: str
    aim: str


def title_of(block: ToolBlock) -> Title:
    """Return the words for a call."""
    known = _TITLES.get(block.name)
    if known is None:
        aim = f"{block.name} {_others(block.arguments)}".strip() or "a tool"
        return Title("Called" if _over(block) else "Calling", _short(aim))
    present, past, target = known
    try:
        aim = target(block.arguments)
    except (TypeError, ValueError, AttributeError, KeyError):
        aim = _others(block.arguments)
    return Title(past if _over(block) else present, _short(aim))


def _over(block: ToolBlock) -> bool:
    """Tell whether a call did what it is named for; a command ran, however it ended."""
    return block.status == "done" or (block.status == "failed" and block.exit_code is not None)


def _short(text: str) -> str:
    text = clean_line(text[: 4 * MAX_CHARS])
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def _value(arguments: _Arguments, *names: str, default: str = "") -> str:
    found = next((arguments[name] for name in names if arguments.get(name) not in (None, "")), default)
    return str(found)


def _path(arguments: _Arguments, default: str = "") -> str:
    return _value(arguments, "path", "file_path", "filename", "file", default=default)


def _span(arguments: _Arguments) -> str:
    start, end = arguments.get("start_line"), arguments.get("end_line")
    span = "" if start is None and end is None else f":{start or 1}-{end or ''}"
    return _path(arguments) + span


def _within(arguments: _Arguments) -> str:
    place = _path(arguments)
    return "" if place in {"", "."} else f" in {place}"


def _patched(arguments: _Arguments) -> str:
    names = list(dict.fromkeys(_PATCHED.findall(_value(arguments, "patch", "input", "diff"))))
    shown = [name.strip() for name in names if name.strip() != "/dev/null"]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def _grep(arguments: _Arguments) -> str:
    glob = _value(arguments, "glob")
    return f"“{_value(arguments, 'pattern', 'query')}”{_within(arguments)}" + (f" ({glob})" if glob else "")


def _command(arguments: _Arguments) -> str:
    return _value(arguments, "command", "cmd", "script").strip().replace("\n", " ↵ ")


def _shell(arguments: _Arguments) -> str:
    return _value(arguments, "shell_id", "id", "bash_id")


def _others(arguments: _Arguments) -> str:
    parts: list[str] = []
    for name, value in list(arguments.items())[:6]:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        parts.append(f"{name}={text[:80]}")
    return " ".join(parts)


def _first(*names: str) -> Callable[[_Arguments], str]:
    return lambda arguments: _value(arguments, *names)


def _quoted(*names: str) -> Callable[[_Arguments], str]:
    return lambda arguments: f"“{_value(arguments, *names)}”"


def _task(arguments: _Arguments) -> str:
    return f"{_value(arguments, 'agent', default='an agent')}: {_value(arguments, 'description', 'prompt')}"


def _items(arguments: _Arguments) -> str:
    """Return how far a list is, and what is at work."""
    found = arguments.get("items") or arguments.get("todos") or arguments.get("steps")
    if not isinstance(found, list | tuple):
        return ""
    items = [cast("_Arguments", item) for item in cast("list[Any]", found) if isinstance(item, Mapping)]
    done = sum(item.get("status") in DONE for item in items)
    now = next((str(item.get("title", "")) for item in items if item.get("status") in AT_WORK), "")
    return f"{done}/{len(items)}" + (f", now: {now}" if now else "")


_TITLES: dict[str, tuple[str, str, Callable[[_Arguments], str]]] = {
    "read_file": ("Reading", "Read", _span),
    "write_file": ("Writing", "Wrote", _path),
    "edit_file": ("Editing", "Edited", _path),
    "apply_patch": ("Patching", "Patched", _patched),
    "list_directory": ("Listing", "Listed", lambda arguments: _path(arguments, ".")),
    "find_files": ("Finding", "Found", lambda arguments: _value(arguments, "pattern") + _within(arguments)),
    "grep": ("Searching", "Searched", _grep),
    "bash": ("Running", "Ran", _command),
    "bash_output": ("Reading output of", "Read output of", _shell),
    "kill_shell": ("Ending", "Ended", _shell),
    "read_output": ("Reading output", "Read output", _first("ref", "reference", "output_ref")),
    "fetch": ("Fetching", "Fetched", _first("url")),
    "web_fetch": ("Fetching", "Fetched", _first("url")),
    "web_search": ("Searching the web for", "Searched the web for", _quoted("query")),
    "update_todos": ("Updating the list", "Updated the list", _items),
    "update_plan": ("Updating the plan", "Updated the plan", _items),
    "todo": ("Updating the list", "Updated the list", _items),
    "plan": ("Updating the plan", "Updated the plan", _items),
    "ask_user": ("Asking", "Asked", _quoted("question", "prompt")),
    "task": ("Giving", "Gave", _task),
    "task_result": ("Waiting for", "Heard from", _first("agent_id")),
    "memory_search": ("Searching notes for", "Searched notes for", _quoted("query")),
    "memory_read": ("Reading the note", "Read the note", _first("name")),
    "memory_write": ("Proposing the note", "Proposed the note", _first("title")),
    "skill": ("Reading the skill", "Read the skill", _first("name", "skill")),
}
