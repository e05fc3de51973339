"""Every action that a key does: one table for bindings, footer, help and docs/keyboard.md.

``[tui.keys]`` names actions of this table; a widget takes its bindings from `bindings`, so that each has the
action's name as its id, by which Textual binds it to other keys.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Place = Literal["app", "prompt", "transcript", "approval", "queue", "list", "viewer"]
"""Where an action works: everywhere, or while that part has the focus."""

PLACES: Mapping[Place, str] = {
    "app": "Everywhere",
    "prompt": "In the prompt",
    "transcript": "In the transcript",
    "approval": "When aar asks you",
    "queue": "In the queue",
    "list": "In lists",
    "viewer": "In the views of changes and logs",
}


@dataclass(frozen=True, slots=True)
class KeyAction:
    """Something that a key does.

    Attributes:
        name: For ``[tui.keys]``.
        place: Where it works.
        keys: By default, in Textual's words, with commas between them.
        label: One or two words for the footer.
        help: One sentence.
        action: Textual's action.
        footer: Whether the footer shows it.
        priority: Whether it wins over the widget that has the focus.
        fixed: Whether the widget handles the keys itself, so that they cannot be changed.
    """

    name: str
    place: Place
    keys: str
    label: str
    help: str
    action: str = ""
    footer: bool = False
    priority: bool = False
    fixed: bool = False


def _app(
    name: str, keys: str, label: str, help_: str, *, footer: bool = False, priority: bool = True
) -> KeyAction:
    return KeyAction(name, "app", keys, label, help_, name, footer, priority)


ACTIONS: tuple[KeyAction, ...] = (
    _app("interrupt", "escape", "interrupt", "End the present run; what was shown is kept.", footer=True, priority=False),
    _app("show_keys", "f1", "keys", "Show all keys.", footer=True),
    _app("toggle_panel", "f2,ctrl+t", "panel", "Open or close the side panel.", footer=True),
    _app("show_sessions", "f3", "sessions", "Go on with another session."),
    _app("show_models", "f4", "model", "Choose the model and how much it thinks."),
    _app("show_changes", "f5", "changes", "Look through everything that this session changed.", footer=True),
    _app("show_themes", "f6", "theme", "Choose colours; each is shown at once."),
    _app("show_settings", "f7", "settings", "Change settings in your config file."),
    _app("show_log", "f8", "log", "Show the diagnostics log."),
    _app("cycle_mode", "shift+tab", "mode", "Change what may run without a question: plan, ask, edit, auto."),
    _app("suspend", "ctrl+z", "suspend", "Go back to the shell; `fg` comes back."),
    _app("quit", "ctrl+q", "quit", "Leave aar; the session is kept.", footer=True),
    KeyAction("move_up", "list", "up,ctrl+p", "up", "Go up one line.", "cursor_up"),
    KeyAction("move_down", "list", "down,ctrl+n", "down", "Go down one line.", "cursor_down"),
    KeyAction("page_up", "list", "pageup", "page up", "Go up one page.", "page_up"),
    KeyAction("page_down", "list", "pagedown", "page down", "Go down one page.", "page_down"),
    KeyAction("choose", "list", "enter", "choose", "Take the marked line.", "choose", footer=True),
    KeyAction("alternative", "list", "ctrl+o", "more", "Do the other thing that the list offers.", "alternative"),
    KeyAction("close_list", "list", "escape", "close", "Close and change nothing.", "close", footer=True),
    KeyAction("next_file", "viewer", "tab,right_square_bracket", "next file", "Go to the next file.", "next_file", footer=True),
    KeyAction("previous_file", "viewer", "shift+tab,left_square_bracket", "previous file", "Go to the file before.", "previous_file"),
    KeyAction("next_hunk", "viewer", "n", "next change", "Go to the next change.", "next_hunk", footer=True),
    KeyAction("previous_hunk", "viewer", "p", "previous change", "Go to the change before.", "previous_hunk"),
    KeyAction("revert_hunk", "viewer", "r", "revert change", "Take the marked change back out of the file.", "revert_hunk", footer=True),
    KeyAction("revert_file", "viewer", "shift+r", "revert file", "Give the file its text of the start of the session.", "revert_file"),
    KeyAction("open_file", "viewer", "o", "open", "Open the file in your editor.", "open_file"),
    KeyAction("close_viewer", "viewer", "escape,q", "close", "Go back.", "close", footer=True),
)  # fmt: skip
"""In the order of the help."""


def bindings(place: Place, actions: Iterable[KeyAction] = ACTIONS) -> list[BindingType]:
    """Return the bindings of one place, for ``BINDINGS`` of a widget or screen."""
    return [
        Binding(
            action.keys,
            action.action,
            action.label,
            id=action.name,
            show=action.footer,
            priority=action.priority,
        )
        for action in actions
        if action.place == place and not action.fixed
    ]


def keymap(
    wanted: Mapping[str, str], actions: Iterable[KeyAction] = ACTIONS
) -> tuple[dict[str, str], list[str]]:
    """Return what of ``[tui.keys]`` can be had, and a sentence for each thing that cannot.

    An action keeps its own keys where a new one is taken already; the first of the table wins.

    Args:
        wanted: Keys by name of an action.
        actions: The table.
    """
    known = {action.name: action for action in actions}
    chosen: dict[str, str] = {}
    problems: list[str] = []
    for name, text in wanted.items():
        action = known.get(name)
        if action is None:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else "docs/keyboard.md lists them."
            problems.append(f"[tui.keys] {name}: there is no such action. {hint}")
        elif action.fixed:
            problems.append(f"[tui.keys] {name}: this key belongs to the text box and cannot be changed.")
        elif not (keys := [key for part in text.split(",") if (key := normal_key(part))]):
            problems.append(f"[tui.keys] {name}: {text!r} names no key; write one like ctrl+t or f2.")
        else:
            chosen[name] = ",".join(keys)
    return _without_conflicts(chosen, known, problems), problems


def _without_conflicts(
    chosen: dict[str, str], known: Mapping[str, KeyAction], problems: list[str]
) -> dict[str, str]:
    """Leave out what would take a key from an action that works in the same place."""
    accepted = dict(chosen)
    for name in chosen:
        own = known[name]
        for other in known.values():
            if other.name == name or not _meet(own, other):
                continue
            taken = accepted.get(other.name, other.keys).split(",")
            both = [key for key in accepted[name].split(",") if key in taken]
            if both:
                problems.append(
                    f"[tui.keys] {name}: {both[0]} already does {other.name}; give one of them another key."
                )
                del accepted[name]
                break
    return accepted


def _meet(one: KeyAction, other: KeyAction) -> bool:
    """Tell whether both can work at the same time. A list or view covers the rest but the whole app's."""
    if one.place == other.place:
        return True
    return one.priority and other.priority and "app" in {one.place, other.place}


_SIGNS = {"[": "left_square_bracket", "]": "right_square_bracket", "/": "slash", "?": "question_mark"}


def normal_key(text: str) -> str:
    """Return a key in Textual's words (``Ctrl-T`` is ``ctrl+t``); empty where it cannot be one."""
    key = text.strip()
    key = _SIGNS.get(key) or re.sub(r"(?i)\b(ctrl|alt|shift|super)-", r"\1+", key)
    key = key if len(key) == 1 else key.lower()
    return (
        key if re.fullmatch(r"(?:(?:ctrl|alt|shift|super)\+)*(?:[a-z0-9_]+|\S)", key, re.IGNORECASE) else ""
    )


_SHOWN = {
    "escape": "Esc",
    "enter": "Enter",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "slash": "/",
    "question_mark": "?",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}


def shown_key(key: str) -> str:
    """Return one key as people write it: ``Ctrl+T``."""
    *held, last = key.split("+") if len(key) > 1 else [key]
    name = _SHOWN.get(last) or (last if len(last) == 1 and not held else last.capitalize())
    return "+".join([*(part.capitalize() for part in held), name])


def shown_keys(action: KeyAction, changed: Mapping[str, str]) -> str:
    """Return all keys of ``action``, with those that the user chose in their place."""
    return " or ".join(shown_key(key) for key in changed.get(action.name, action.keys).split(","))


def keyboard_tables(actions: Iterable[KeyAction] = ACTIONS) -> str:
    """Return the tables of docs/keyboard.md."""
    listed = list(actions)
    parts: list[str] = []
    for place, title in PLACES.items():
        rows = [
            f"| {shown_keys(action, {}).replace('|', chr(92) + '|')} | {action.help} | "
            + (f"`{action.name}`" if not action.fixed else "")
            + " |"
            for action in listed
            if action.place == place
        ]
        if rows:
            parts.append(f"### {title}\n\n| key | does | name |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)
