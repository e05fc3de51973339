"""Checking one layer of settings against the schema, with messages that name the place.

Sections are checked one by one: building the validator of the whole `Config` costs ten times as much as
the one or two sections that a file has. Checking is strict (``"5"`` is no number): TOML has types.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from aar.config.schema import Config, Section, ToolsConfig, ToolSettings
from aar.config.toml_lines import KeyPath, find_line, join_key
from aar.protocol.errors import ConfigurationError


@dataclass(slots=True)
class Layer:
    """Settings of one origin.

    Attributes:
        name: ``user profile project config environment flags managed``.
        values: Nested tables.
        file: Where they were read, for layers that are files.
        text: Content of ``file``, from which lines are told.
        prefix: Table of ``file`` that holds the values (``profiles.NAME``).
        places: For other layers: variable or flag by key.
        raw: What was written for a key of these, before it was taken for TOML.
    """

    name: str
    values: dict[str, Any]
    file: Path | None = None
    text: str = ""
    prefix: KeyPath = ()
    places: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    raw: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])

    def line(self, path: KeyPath) -> int | None:
        """Return the line of ``path`` in the file; found only when somebody asks."""
        return None if self.file is None else find_line(self.text, self.prefix + path)

    def where(self, path: KeyPath) -> str:
        """Return where ``path`` was set, for the beginning of a sentence."""
        if self.file is not None:
            line = self.line(path)
            return f"{self.file}, line {line}" if line else str(self.file)
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        below = (place for key, place in self.places.items() if key[: len(path)] == path)
        return next(below, self.name)


def is_section(annotation: object) -> typing.TypeGuard[type[Section]]:
    """Tell whether ``annotation`` is a table with fixed keys."""
    return isinstance(annotation, type) and issubclass(annotation, Section)


def child(annotation: object, key: str) -> object | None:
    """Return the annotation of ``key`` in a table, or ``None`` when it has no such key."""
    if is_section(annotation):
        found = annotation.model_fields.get(key)
        if found is not None:
            return found.annotation
        return ToolSettings if annotation is ToolsConfig else None
    if typing.get_origin(annotation) is dict:
        return typing.get_args(annotation)[1]
    return Any if annotation is Any else None


def annotation_at(path: Iterable[str]) -> object | None:
    """Return the annotation of a key of the schema, or ``None`` when there is no such key."""
    annotation: object | None = Config
    for key in path:
        annotation = child(annotation, key)
        if annotation is None:
            return None
    return annotation


def build(values: Mapping[str, Any]) -> Config:
    """Return the config for values that `check` has found right."""
    config, problems = _build(values)
    if problems:
        raise ConfigurationError("; ".join(text for _path, text, _kind in problems))
    return config


def check(layer: Layer) -> None:
    """Check one layer.

    Raises:
        ConfigurationError: The first problem with file, line, key and what is expected.
    """
    found = problems(layer)
    if found:
        more = len(found) - 1
        rest = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
        raise ConfigurationError(found[0] + rest)


def problems(layer: Layer) -> list[str]:
    """Return one sentence for each thing that is wrong with ``layer``."""
    found = _build(layer.values)[1]
    if _take_as_strings(layer, found):
        found = _build(layer.values)[1]
    if layer.name != "flags" and lookup(layer.values, ("permissions", "mode")) == "unsafe":
        text = "permissions.mode: unsafe can be given only for one run, with --mode unsafe."
        found.append((("permissions", "mode"), text, "unsafe"))
    return [_placed(layer.where(path), text) for path, text, _kind in found]


def _placed(place: str, text: str) -> str:
    """Return a sentence with its place before it; a flag that is the key is not named twice."""
    before, _, key = place.rpartition(" ")
    named_twice = before in ("--set", "The flag for") and text.startswith(f"{key}:")
    return f"{before} {text}" if named_twice else f"{place}: {text}"


def lookup(values: Mapping[str, Any], path: KeyPath) -> Any:
    """Return the value at ``path``, or ``None``."""
    value: Any = values
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(key)
    return value


def store(values: dict[str, Any], path: KeyPath, value: Any) -> None:
    """Set the value at ``path``, making tables on the way.

    Raises:
        ConfigurationError: A part of the path holds a value that is no table.
    """
    for key in path[:-1]:
        inner = values.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigurationError(f"{join_key(path)} cannot be set: {key} is a value, not a table.")
        values = cast("dict[str, Any]", inner)
    values[path[-1]] = value


_Problem = tuple[KeyPath, str, str]


def _take_as_strings(layer: Layer, found: list[_Problem]) -> bool:
    """Take variables and flags that look like numbers for text, where text is expected."""
    changed = False
    for path, _text, kind in found:
        if kind == "string_type" and path in layer.raw:
            store(layer.values, path, layer.raw[path])
            changed = True
    return changed


def _build(values: Mapping[str, Any]) -> tuple[Config, list[_Problem]]:
    parts: dict[str, Any] = {}
    found: list[_Problem] = []
    for name, value in values.items():
        info = Config.model_fields.get(name)
        if info is None:
            found.append(((name,), _unknown((name,)), "extra_forbidden"))
            continue
        parts[name] = _part(info.annotation, (name,), value, found)
    return Config.model_construct(**parts), found


def _part(annotation: object, path: KeyPath, value: Any, found: list[_Problem]) -> Any:
    if not isinstance(value, dict):
        text = f"{join_key(path)}: expected a table, as in [{join_key(path)}]."
        found.append((path, text, "dict_type"))
        return None
    table = cast("dict[str, Any]", value)
    if is_section(annotation):
        return _section(annotation, path, table, found)
    inner = child(annotation, "")
    if is_section(inner):
        return {key: _part(inner, (*path, key), item, found) for key, item in table.items()}
    return table


def _section(model: type[BaseModel], path: KeyPath, table: dict[str, Any], found: list[_Problem]) -> Any:
    try:
        # JSON mode is the strict mode that takes lists for tuples.
        return model.model_validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        seen: set[KeyPath] = set()
        for item in error.errors(include_url=False, include_context=True):
            where = path + _written(table, item)
            if where not in seen:
                seen.add(where)
                found.append((where, _sentence(where, item), item["type"]))
        return None


def _written(table: object, item: ErrorDetails) -> KeyPath:
    """Return the part of an error's location that is written in the file (not branches of unions)."""
    path: list[str] = []
    for key in item["loc"]:
        if isinstance(key, int) or not isinstance(table, dict):
            break
        if key not in table:
            break
        path.append(key)
        table = cast("dict[str, Any]", table)[key]
    return tuple(path)


_EXPECTED = {
    "string_type": "a string in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": 'a list, such as ["…"]',
    "dict_type": "a table",
    "model_type": "a table",
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number less than {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
}


def _sentence(path: KeyPath, item: ErrorDetails) -> str:
    kind = item["type"]
    if kind == "extra_forbidden" or (kind == "model_type" and _is_tool_key(path)):
        return _unknown(path)
    context = item.get("ctx") or {}
    if kind == "literal_error":
        return _unknown_word(path, str(item["input"]), str(context.get("expected", "")))
    if path == ("model", "reasoning"):
        return "model.reasoning: expected a level in quotes, or a number of tokens of at least 0."
    if kind == "string_type" and item["loc"] and isinstance(item["loc"][-1], int):
        return f"{join_key(path)}: expected a list of strings in quotes."
    expected = _EXPECTED.get(kind)
    if expected is None:
        return f"{join_key(path)}: {item['msg'][:1].lower()}{item['msg'][1:]}."
    return f"{join_key(path)}: expected {expected.format(**context)}."


def _is_tool_key(path: KeyPath) -> bool:
    return len(path) == 2 and path[0] == "tools"


def _unknown_word(path: KeyPath, given: str, expected: str) -> str:
    import difflib
    import re

    near = difflib.get_close_matches(given, re.findall(r"'([^']*)'", expected), 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{join_key(path)}: {given[:80]!r} is not one of {expected}.{hint}"


def _unknown(path: KeyPath) -> str:
    near = nearest(path)
    hint = f"; did you mean {near}?" if near else f"; known keys here: {', '.join(known(path[:-1]))}."
    return f"{join_key(path)} is not a known key{hint}"


def known(path: KeyPath) -> list[str]:
    """Return the keys that a table of the schema has."""
    annotation = annotation_at(path)
    return sorted(annotation.model_fields) if is_section(annotation) else []


def nearest(path: KeyPath) -> str | None:
    """Return the known key that was most likely meant by the unknown ``path``."""
    import difflib

    table, key = path[:-1], path[-1].replace("-", "_").lower()
    names = known(table)
    close = [key] if key in names else difflib.get_close_matches(key, names, 1, 0.6)
    if close:
        return join_key((*table, close[0]))
    for section in Config.model_fields:
        if key in known((section,)):
            return join_key((section, key))
    return None
