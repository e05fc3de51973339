"""What of ``[tui]`` the first frame needs, read without the rest of aar; the whole config is read later."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

SECTIONS = ("thinking", "plan", "files", "agents", "context", "log")
NARROW = 100
"""Columns below which the side panel takes the place of the transcript."""

_PREFIX = "AAR_TUI__"
_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Layout:
    """Which parts of the screen are shown; the fields of ``[tui.layout]``."""

    header: bool = True
    activity: bool = True
    footer: bool = True
    panel: bool | Literal["auto"] = "auto"
    panel_width: int = 34
    panel_from: int = 120
    sections: tuple[str, ...] = SECTIONS

    def has_panel(self, columns: int, wanted: bool | None) -> bool:
        """Tell whether the side panel is open.

        Args:
            columns: Of the terminal.
            wanted: What the user's last key said; ``None``: nothing.
        """
        if wanted is not None:
            return wanted
        return columns >= self.panel_from if self.panel == "auto" else self.panel and columns >= NARROW


@dataclass(frozen=True, slots=True)
class Look:
    """``[tui]`` as far as the screen itself needs it; fields as in the config."""

    theme: str = "auto"
    mouse: bool = True
    screen_reader: bool = False
    notify: str = "auto"
    status_command: str | None = None
    status_interval: float = 30.0
    keys: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict[str, "str | Mapping[str, str]"])
    layout: Layout = Layout()


def look_of(section: Any) -> Look:
    """Return the look that a checked ``[tui]`` section tells."""
    layout = Layout(**{item.name: getattr(section.layout, item.name) for item in fields(Layout)})
    names = {item.name for item in fields(Look)} - {"layout"}
    return Look(layout=layout, **{name: getattr(section, name) for name in names})


def early_look(
    user_config: Path, environ: Mapping[str, str], flags: Mapping[str, object], sets: Sequence[str]
) -> Look:
    """Return the look as the user's file, the environment and the flags tell it.

    Values that are wrong are passed over: reading the whole config tells of them, and its look wins.

    Args:
        user_config: ``<config>/config.toml``.
        environ: For ``AAR_TUI__THEME`` and its like.
        flags: Values by dotted key.
        sets: ``KEY=VALUE`` of ``--set``.
    """
    found = _from_file(user_config)
    for name, text in environ.items():
        if name.startswith(_PREFIX) and text:
            _put(found, name[len(_PREFIX) :].lower().split("__"), _value(text))
    for key, value in flags.items():
        if key.startswith("tui."):
            _put(found, key.split(".")[1:], value)
    for setting in sets:
        key, _, text = setting.partition("=")
        if key.startswith("tui."):
            _put(found, key.split(".")[1:], _value(text))
    layout = found.pop("layout", None)
    look = replace(Look(), **_fitting(found, Look()))
    if isinstance(layout, dict):
        look = replace(look, layout=replace(Layout(), **_fitting(cast("dict[str, Any]", layout), Layout())))
    return look


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            section: object = tomllib.loads(file.read(_MAX_BYTES).decode("utf-8-sig")).get("tui")
    except (OSError, ValueError, RecursionError):
        return {}
    return dict(cast("dict[str, Any]", section)) if isinstance(section, dict) else {}


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *parents, last = path
    for part in parents:
        inner = values.get(part)
        values[part] = values = dict(cast("dict[str, Any]", inner)) if isinstance(inner, dict) else {}
    values[last] = value


def _fitting(values: Mapping[str, Any], default: Look | Layout) -> dict[str, Any]:
    """Return those values that have the type of the default."""
    fitting: dict[str, Any] = {}
    for item in fields(default):
        value, standard = values.get(item.name), getattr(default, item.name)
        if item.name == "sections" and isinstance(value, list):
            fitting[item.name] = tuple(str(part) for part in cast("list[Any]", value) if part in SECTIONS)
        elif item.name == "panel":
            if isinstance(value, bool):
                fitting["panel"] = value
        elif value is not None and (type(value) is type(standard) or _fits_other(item.name, value)):
            fitting[item.name] = value
    return fitting


def _fits_other(name: str, value: object) -> bool:
    return (name == "keys" and isinstance(value, dict)) or (
        name == "status_command" and isinstance(value, str)
    )
