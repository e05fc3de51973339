"""Which hooks there are: from ``[hooks]`` of the configuration and from Claude Code's ``settings.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from aar.config.files import UnusableFileError, read_regular
from aar.extensions.hooks_claude import EVENTS as CLAUDE_EVENTS
from aar.protocol.errors import ConfigurationError

EVENTS = (
    "session_start",
    "session_end",
    "prompt_submit",
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
    "approval_needed",
    "stop",
    "compaction",
    "subagent_stop",
    "notification",
    "file_changed",
    "error",
    "plan_step_done",
    "plan_changed",
)
_WEB = ("*.js", "*.jsx", "*.ts", "*.tsx", "*.mjs", "*.cjs", "*.css", "*.scss", "*.html", "*.vue", "*.json")
AFTER_EDIT_TOOLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ruff": ("ruff check --fix --quiet {path}; code=$?; ruff format --quiet {path} && exit $code", ("*.py",)),
    "pyright": ("pyright {path}", ("*.py",)),
    "prettier": ("prettier --write --log-level warn {path}", _WEB),
}
"""Formatters and checkers that ``after_edit`` may name alone: command, and for which files."""
_SETTINGS = ("timeout", "fail", "claude", "after_edit")
_KEYS = frozenset({"command", "matcher", "timeout", "fail", "sandbox"})
_EDIT_KEYS = frozenset({"command", "glob", "timeout", "sandbox"})
_TIMEOUT = 60.0
_MAX_TIMEOUT = 3600.0
_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook.

    Attributes:
        event: When it runs.
        command: A line of shell.
        matcher: For which tools; see `matches_tool`.
        timeout: Seconds.
        fail: ``closed``: what cannot be checked may not go on.
        sandbox: Whether it runs behind the wall; only the user's own may do without.
        project: Whether the project brought it.
        claude: Whether it is in Claude Code's form.
    """

    event: str
    command: str
    matcher: str = ""
    timeout: float = _TIMEOUT
    fail: Literal["open", "closed"] = "open"
    sandbox: bool = True
    project: bool = False
    claude: bool = False


@dataclass(frozen=True, slots=True)
class AfterEdit:
    """A command that formats or checks a file after it was changed; ``{path}`` stands for the file."""

    command: str
    glob: str = "*"
    timeout: float = _TIMEOUT
    sandbox: bool = True
    project: bool = False


def from_config(
    table: Mapping[str, Any], project: Mapping[str, Any]
) -> tuple[list[Hook], list[AfterEdit], list[str]]:
    """Return the hooks of ``[hooks]``, the commands after edits, and sentences about what is not understood.

    Args:
        table: ``[hooks]`` of all layers together.
        project: ``[hooks]`` of the project's own file; what stands there too counts as the project's.

    Raises:
        ConfigurationError: A hook of the user is wrong.
    """
    hooks: list[Hook] = []
    edits: list[AfterEdit] = []
    notices = [
        f"[hooks] {key} is not known; events are {', '.join(EVENTS)}." for key in table if not _known(key)
    ]
    timeout, fail = _seconds("timeout", table.get("timeout", _TIMEOUT)), _fail(table.get("fail", "open"))
    for event in (*EVENTS, "after_edit"):
        theirs = _known_tools(event, _entries(event, project.get(event, ())))
        for entry in _known_tools(event, _entries(event, table.get(event, ()))):
            foreign = entry in theirs
            unknown = set(entry) - (_EDIT_KEYS if event == "after_edit" else _KEYS)
            if unknown or not isinstance(entry.get("command"), str):
                what = f"{sorted(unknown)[0]} is not known" if unknown else "command is missing"
                raise ConfigurationError(f"[[hooks.{event}]]: {what}.")
            seconds = _seconds(f"{event} timeout", entry.get("timeout", timeout))
            sandbox = entry.get("sandbox", True) is not False or foreign
            if event == "after_edit":
                edits.append(
                    AfterEdit(entry["command"], str(entry.get("glob", "*")), seconds, sandbox, foreign)
                )
            else:
                matcher, closed = str(entry.get("matcher", "")), _fail(entry.get("fail", fail))
                hooks.append(Hook(event, entry["command"], matcher, seconds, closed, sandbox, foreign))
    return hooks, edits, notices


def _known_tools(event: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put whole entries in the place of those that only name a formatter or checker that aar knows."""
    if event != "after_edit":
        return entries
    found: list[dict[str, Any]] = []
    for entry in entries:
        command, globs = AFTER_EDIT_TOOLS.get(str(entry.get("command")), ("", ()))
        if not command:
            found.append(entry)
        elif "glob" in entry:
            found.append({**entry, "command": command})
        else:
            found += [{**entry, "command": command, "glob": glob} for glob in globs]
    return found


def _known(key: str) -> bool:
    return key in EVENTS or key in _SETTINGS


def _entries(event: str, value: object) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"command": value}]
    found: list[dict[str, Any]] = []
    for item in cast("list[Any]", value) if isinstance(value, list | tuple) else [value]:
        if isinstance(item, str):
            found.append({"command": item})
        elif isinstance(item, dict):
            found.append(cast("dict[str, Any]", item))
        else:
            raise ConfigurationError(f"[hooks] {event} must be a list of commands, as in [[hooks.{event}]].")
    return found


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MAX_TIMEOUT:
        raise ConfigurationError(f"[hooks] {name} must be seconds, more than 0 and at most {_MAX_TIMEOUT:g}.")
    return float(value)


def _fail(value: object) -> Literal["open", "closed"]:
    if value not in ("open", "closed"):
        raise ConfigurationError('[hooks] fail must be "open" or "closed".')
    return "closed" if value == "closed" else "open"


def from_claude(file: Path, *, inside: Path | None) -> tuple[list[Hook], list[str]]:
    """Return the hooks of a ``settings.json``, and sentences about what in it aar does not do.

    Args:
        file: The file; it need not exist.
        inside: The project's root for a project's file; ``None``: it is the user's own.
    """
    try:
        data = read_regular(file, _MAX_BYTES, inside=inside)
        settings: object = json.loads(data) if data else None
    except (UnusableFileError, ValueError, RecursionError) as error:
        return [], [f"The hooks of {file} are not used: {error}."]
    table = cast("dict[str, Any]", settings) if isinstance(settings, dict) else {}
    groups = table.get("hooks")
    if not isinstance(groups, dict) or table.get("disableAllHooks") is True:
        return [], []
    hooks: list[Hook] = []
    notices: list[str] = []
    for name, entries in cast("dict[str, Any]", groups).items():
        event = CLAUDE_EVENTS.get(name)
        if event is None:
            notices.append(f"{file}: hooks on {name[:40]} are not run; aar has no such event.")
            continue
        for matcher, entry in _claude_entries(entries):
            if entry.get("type", "command") != "command" or not isinstance(entry.get("command"), str):
                notices.append(f"{file}: a hook on {name} is not a command and is not run.")
                continue
            given = entry.get("timeout", _TIMEOUT)
            number = isinstance(given, int | float) and not isinstance(given, bool) and given > 0
            timeout = min(float(given), _MAX_TIMEOUT) if number else _TIMEOUT
            project = inside is not None
            hooks.append(
                Hook(event, entry["command"], matcher, timeout, project=project, sandbox=True, claude=True)
            )
    return hooks, notices


def _claude_entries(entries: object) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for group in cast("list[Any]", entries) if isinstance(entries, list) else []:
        table = cast("dict[str, Any]", group) if isinstance(group, dict) else {}
        commands = table.get("hooks")
        entries_of = cast("list[Any]", commands) if isinstance(commands, list) else []
        matcher = str(table.get("matcher") or "")
        found += [(matcher, cast("dict[str, Any]", entry)) for entry in entries_of if isinstance(entry, dict)]
    return found
