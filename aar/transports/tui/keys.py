"""Every action that a key does: one table for bindings, footer, help and docs/keyboard.md.

Actions are called ``place.name``, which is the id of their bindings: by it ``[tui.keys]`` gives them other keys. Those of
the whole app, of lists and of views stand here; `all_actions` adds what the parts of the screen bind themselves.
"""

# ruff: noqa: E501 (one action a line: it is read as a table)

from __future__ import annotations

import difflib
import re
import string
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS

PLACES: Mapping[str, str] = {
    "app": "Everywhere",
    "prompt": "In the prompt",
    "search": "While you search earlier prompts",
    "queue": "In the queue",
    "transcript": "In the transcript",
    "approval": "When aar asks you",
    "answer": "While you write an answer",
    "confirm": "When a yes or no is wanted",
    "list": "In lists",
    "sessions": "In the list of sessions",
    "viewer": "In the views of changes and logs",
    "ask": "While aar asks for a line of text",
}
"""Where an action works: everywhere, or while that part has the focus."""


@dataclass(frozen=True, slots=True)
class KeyAction:
    """Something that a key does.

    Attributes:
        name: ``place.name``, for ``[tui.keys]``.
        keys: By default, in Textual's words, with commas between them.
        label: One or two words for the footer.
        help: One sentence.
        action: Textual's action.
        footer: Whether the footer shows it.
        priority: Whether it wins over the widget that has the focus.
    """

    name: str
    keys: str
    label: str
    help: str
    action: str = ""
    footer: bool = False
    priority: bool = False

    @property
    def place(self) -> str:
        """Where it works, see `PLACES`."""
        return self.name.partition(".")[0]


def _app(
    name: str, keys: str, label: str, help_: str, *, footer: bool = False, priority: bool = True
) -> KeyAction:
    return KeyAction(f"app.{name}", keys, label, help_, name, footer, priority)


ACTIONS: tuple[KeyAction, ...] = (
    _app("interrupt", "escape", "interrupt", "End the present run; what was shown is kept.", footer=True, priority=False),
    _app("show_commands", "ctrl+p", "commands", "Show all commands; type to find one.", footer=True),
    _app("show_keys", "f1", "keys", "Show all keys.", footer=True),
    _app("toggle_panel", "f2,ctrl+t", "panel", "Open or close the side panel.", footer=True),
    _app("show_sessions", "f3", "sessions", "Go on with another session."),
    _app("show_models", "f4", "model", "Choose the model and how much it thinks."),
    _app("show_changes", "f5", "changes", "Look through everything that this session changed.", footer=True),
    _app("show_themes", "f6", "theme", "Choose colours; each is shown at once."),
    _app("show_settings", "f7", "settings", "Change settings in your config file."),
    _app("show_log", "f8", "log", "Show the diagnostics log."),
    _app("cycle_mode", "shift+tab", "mode", "Change what may run without a question: plan, ask, edit, auto."),
    _app("to_background", "ctrl+b", "background", "Send the running command to the background; aar goes on without its end."),
    _app("voice", "alt+v", "dictate", "Speak into the prompt; once more ends the recording, Esc too."),
    _app("answer", "tab", "answer", "Go to the question that is open.", priority=False),
    _app("suspend", "ctrl+z", "suspend", "Go back to the shell; `fg` comes back."),
    _app("quit", "ctrl+q", "quit", "Leave aar; the session is kept.", footer=True),
    KeyAction("list.up", "up,ctrl+p", "up", "Go up one line.", "cursor_up"),
    KeyAction("list.down", "down,ctrl+n", "down", "Go down one line.", "cursor_down"),
    KeyAction("list.page_up", "pageup", "page up", "Go up one page.", "page_up"),
    KeyAction("list.page_down", "pagedown", "page down", "Go down one page.", "page_down"),
    KeyAction("list.choose", "enter", "choose", "Take the marked line.", "choose", footer=True, priority=True),
    KeyAction("list.alternative", "ctrl+o", "more", "Do the other thing that the list offers.", "alternative", footer=True, priority=True),
    KeyAction("list.close", "escape", "close", "Close and change nothing.", "close", footer=True),
    KeyAction("sessions.rename", "ctrl+r", "rename", "Give the marked session another title.", "rename", footer=True, priority=True),
    KeyAction("sessions.delete", "ctrl+d", "delete", "Delete the marked session for good; a second time does it.", "delete", footer=True, priority=True),
    KeyAction("viewer.next_file", "tab,right_square_bracket", "file", "Go to the next file.", "next_file", footer=True),
    KeyAction("viewer.previous_file", "shift+tab,left_square_bracket", "previous file", "Go to the file before.", "previous_file"),
    KeyAction("viewer.next_hunk", "n", "change", "Go to the next change.", "next_hunk", footer=True),
    KeyAction("viewer.previous_hunk", "p", "previous change", "Go to the change before.", "previous_hunk"),
    KeyAction("viewer.revert_hunk", "r", "revert", "Take the marked change back out of the file.", "revert_hunk", footer=True),
    KeyAction("viewer.revert_file", "R,shift+r", "revert file", "Give the file its text of the start of the session.", "revert_file", footer=True),
    KeyAction("viewer.open_file", "o", "open", "Open the file in your editor.", "open_file"),
    KeyAction("viewer.close", "escape,q", "close", "Go back.", "close", footer=True),
)  # fmt: skip
"""In the order of the help."""


HELP: Mapping[str, str] = {
    "app.scroll_up": "Scroll the transcript up, also while you type.",
    "app.scroll_down": "Scroll the transcript down, also while you type.",
    "prompt.cursor_left": "Go one character left.",
    "prompt.cursor_right": "Go one character right.",
    "prompt.cursor_word_left": "Go one word left.",
    "prompt.cursor_word_right": "Go one word right.",
    "prompt.cursor_line_start": "Go to the start of the line.",
    "prompt.cursor_line_end": "Go to the end of the line.",
    "prompt.cursor_left_select": "Select one character to the left.",
    "prompt.cursor_right_select": "Select one character to the right.",
    "prompt.cursor_up_select": "Select up to the line above.",
    "prompt.cursor_down_select": "Select down to the line below.",
    "prompt.cursor_line_start_select": "Select to the start of the line.",
    "prompt.cursor_line_end_select": "Select to the end of the line.",
    "prompt.cursor_word_left_select": "Select one word to the left.",
    "prompt.cursor_word_right_select": "Select one word to the right.",
    "prompt.select_all": "Select the whole prompt.",
    "prompt.delete_left": "Delete the character to the left.",
    "prompt.delete_right": "Delete the character to the right.",
    "prompt.delete_word_left": "Delete the word to the left.",
    "prompt.delete_word_right": "Delete the word to the right.",
    "prompt.delete_to_start_of_line": "Delete to the start of the line.",
    "prompt.delete_to_end_of_line_or_delete_line": "Delete to the end of the line; at its end delete the line.",
    "prompt.undo": "Take the last change of the prompt back.",
    "prompt.redo": "Do the change again that was taken back.",
    "search.older": "Go to the prompt before that one.",
    "search.newer": "Go to the prompt after that one.",
    "search.take": "Put the marked prompt into the box.",
    "search.close": "Close the search and change nothing.",
    "search.delete": "Delete the last character of the search.",
    "search.clear": "Empty the search.",
    "queue.up": "Go to the prompt above.",
    "queue.down": "Go to the prompt below.",
    "queue.earlier": "Let the marked prompt come earlier.",
    "queue.later": "Let the marked prompt come later.",
    "queue.edit": "Take the marked prompt back into the box.",
    "queue.remove": "Remove the marked prompt; Ctrl+R finds it again.",
    "queue.leave": "Go back to the prompt.",
    "approval.once": "Yes, this time.",
    "approval.session": "Yes, and keep the rule until the session ends.",
    "approval.project": "Yes, and keep the rule for this project.",
    "approval.user": "Yes, and keep the rule for all your projects.",
    "approval.edit": "Change the command or the arguments, then run it so.",
    "approval.rule": "Change the rule that s, a and u keep.",
    "approval.no": "No; the run ends, and you say what to do.",
    "approval.feedback": "No, with a reason; the model goes on with it.",
    "approval.answer": "Type an answer to a question of the model.",
    "approval.pick": "Answer with the marked option; 1 to 9 do it by number.",
    "approval.next": "Show the next open question.",
    "approval.leave": "Go to the prompt; the question stays open.",
    "approval.up": "Go to the option above, or up a line.",
    "approval.down": "Go to the option below, or down a line.",
    "approval.page_up": "Read a page up.",
    "approval.page_down": "Read a page on.",
    "approval.top": "Go to the beginning of the text.",
    "approval.end": "Go to the end of the text.",
    "answer.take": "Use what was typed.",
    "answer.newline": "Begin a new line.",
    "answer.back": "Go back to the question; what was typed is kept.",
    "confirm.yes": "Do it.",
    "confirm.no": "Leave it.",
    "ask.take": "Use what was typed.",
    "ask.close": "Close and change nothing.",
}
"""Sentences for actions that other parts bind."""


def bindings(place: str) -> list[BindingType]:
    """Return the bindings of one place of `ACTIONS`, for ``BINDINGS`` of an app or screen."""
    return [
        Binding(
            action.keys,
            action.action,
            action.label,
            id=action.name,
            show=action.footer,
            priority=action.priority,
        )
        for action in ACTIONS
        if action.place == place
    ]


def all_actions(widgets: Iterable[type[Any]]) -> list[KeyAction]:
    """Return `ACTIONS` and what ``widgets`` bind besides, ordered by place."""
    found = {action.name: action for action in ACTIONS}
    for widget in widgets:
        for binding in widget.__dict__.get("BINDINGS", ()):
            if isinstance(binding, Binding) and binding.id and binding.id not in found:
                found[binding.id] = _bound(binding, binding.id)
    order = list(PLACES)
    return sorted(
        found.values(), key=lambda action: order.index(action.place) if action.place in order else 99
    )


def _bound(binding: Binding, name: str) -> KeyAction:
    label = binding.description or name.rpartition(".")[2].replace("_", " ")
    sentence = HELP.get(name) or binding.tooltip or f"{label[:1].upper()}{label[1:]}."
    return KeyAction(name, binding.key, label, sentence, binding.action, binding.show, binding.priority)


def flat(wanted: Mapping[str, str | Mapping[str, str]]) -> dict[str, str]:
    """Return ``[tui.keys]`` with one entry an action: ``[tui.keys.app] quit`` is ``app.quit``."""
    entries: dict[str, str] = {}
    for name, value in wanted.items():
        if isinstance(value, str):
            entries[name if "." in name else f"app.{name}"] = value
        else:
            entries |= {f"{name}.{inner}": keys for inner, keys in value.items()}
    return entries


def keymap(wanted: Mapping[str, str], actions: Iterable[KeyAction]) -> tuple[dict[str, str], list[str]]:
    """Return what of ``[tui.keys]`` can be had, and a sentence for each thing that cannot.

    An action keeps its own keys where a new one is taken already.

    Args:
        wanted: Keys by name of an action, see `flat`.
        actions: The table.
    """
    known = {action.name: action for action in actions}
    chosen: dict[str, str] = {}
    problems: list[str] = []
    for name, text in wanted.items():
        keys = [key for part in text.split(",") if (key := normal_key(part))]
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else "docs/keyboard.md lists them."
            problems.append(f"[tui.keys] {name}: there is no such action. {hint}")
        elif not keys:
            problems.append(f"[tui.keys] {name}: {text!r} names no key; write one like ctrl+t or f2.")
        elif trouble := next((told for key in keys if (told := _unreachable(key, known[name]))), ""):
            problems.append(f"[tui.keys] {name}: {trouble}")
        else:
            chosen[name] = ",".join(keys)
    return _without_conflicts(chosen, known, problems), problems


def _without_conflicts(
    chosen: dict[str, str], known: Mapping[str, KeyAction], problems: list[str]
) -> dict[str, str]:
    """Leave out what would take a key from an action that works at the same time."""
    accepted = dict(chosen)
    for name in chosen:
        own = known[name]
        new = set(accepted[name].split(",")) - set(own.keys.split(","))
        for other in known.values():
            if other.name == name or (own.place != other.place and "app" not in {own.place, other.place}):
                continue
            both = sorted(new & set(accepted.get(other.name, other.keys).split(",")))
            if both:
                problems.append(
                    f"[tui.keys] {name}: {both[0]} already does {other.name}; give one of them another key."
                )
                del accepted[name]
                break
    return accepted


_TYPED_IN = frozenset({"app", "prompt", "search", "answer", "list", "ask"})
"""Places where letters are text."""

_TWINS = {"ctrl+i": "Tab", "ctrl+m": "Enter", "ctrl+left_square_bracket": "Esc"}
"""Keys that most terminals do not tell from others."""


def _unreachable(key: str, action: KeyAction) -> str:
    """Return why ``key`` would never do the action, or would do it in the midst of a word; empty: it can."""
    if key in action.keys.split(","):
        return ""
    if key in _TWINS:
        return f"{shown_key(key)} is {_TWINS[key]} to a terminal; take another key."
    *held, last = key.split("+") if len(key) > 1 else [key]
    text = not set(held) - {"shift"} and (len(last) == 1 or last == "space" or last in _SIGNS.values())
    if text and action.place in _TYPED_IN:
        return f"{shown_key(key)} is typed as text there; hold Ctrl or Alt with it, or take a key like f10."
    return ""


def _sign(sign: str) -> str:
    """Return Textual's name of a sign."""
    name = unicodedata.name(sign).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


_SIGNS = {sign: _sign(sign) for sign in string.punctuation}
_OTHER_NAMES = {
    "esc": "escape",
    "return": "enter",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "pgdown": "pagedown",
    "bs": "backspace",
}
_NAMED = frozenset(
    [
        "escape",
        "enter",
        "tab",
        "space",
        "backspace",
        "delete",
        "insert",
        "home",
        "end",
        "pageup",
        "pagedown",
        "up",
        "down",
        "left",
        "right",
    ]
    + [f"f{number}" for number in range(1, 25)]
    + list(_SIGNS.values())
)
_HELD = {"control": "ctrl", "option": "alt", "meta": "alt", "cmd": "super", "command": "super"}
_HOLDS = frozenset({"ctrl", "alt", "shift", "super"})


def normal_key(text: str) -> str:
    """Return a key in Textual's words (``Ctrl-T`` is ``ctrl+t``); empty where there is none of that name."""
    key = text.strip()
    if len(key) == 1:
        return _SIGNS.get(key) or (key if re.fullmatch(r"[a-zA-Z0-9]", key) else "")
    *held, last = re.split(r"[+-](?=.)", key.lower())
    held = [_HELD.get(part, part) for part in held]
    last = _OTHER_NAMES.get(last, _SIGNS.get(last, last))
    if not set(held) <= _HOLDS or not (last in _NAMED or re.fullmatch(r"[a-z0-9]", last)):
        return ""
    return "+".join([*held, last])


_SHOWN = {
    "escape": "Esc",
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


def shown_keys(keys: str) -> str:
    """Return keys with commas between them as people write them."""
    return " or ".join(shown_key(key.strip()) for key in keys.split(","))


def keyboard_tables(actions: Iterable[KeyAction]) -> str:
    """Return the tables of docs/keyboard.md."""
    listed = list(actions)
    parts: list[str] = []
    for place in dict.fromkeys(action.place for action in listed):
        rows = [
            f"| {shown_keys(action.keys).replace('|', chr(92) + '|')} | {action.help} | `{action.name}` |"
            for action in listed
            if action.place == place
        ]
        title = PLACES.get(place, place)
        parts.append(f"### {title}\n\n| key | does | name |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)
