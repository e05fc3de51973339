"""All actions of all parts of the screen, for help, ``[tui.keys]`` and docs/keyboard.md."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aar.transports.tui.keys import KeyAction, all_actions

_MODULES = (
    "app",
    "prompt.area",
    "prompt.history_search",
    "prompt.queue_panel",
    "prompt.hint",
    "transcript.view",
    "approvals.panel",
    "approvals.input",
    "screens.ask_text",
)
"""Where widgets with bindings of their own are defined."""


def key_table() -> list[KeyAction]:
    """Return every action that has a name, by place."""
    package = __package__ or "aar.transports.tui"
    widgets: dict[type[Any], None] = {}
    for name in _MODULES:
        for value in vars(import_module(f"{package}.{name}")).values():
            if isinstance(value, type) and "BINDINGS" in value.__dict__:
                widgets[value] = None
    return all_actions(widgets)
