"""Settings from environment variables and flags, and ``${VAR}`` inside of values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, cast

from aar.config.toml_lines import KeyPath, split_key
from aar.config.validate import Layer, annotation_at, is_section, lookup, store
from aar.protocol.errors import ConfigurationError, UsageError
from aar.protocol.late import late_pattern
from aar.protocol.text import clean_text

_PREFIX = "AAR_"
_REFERENCE = late_pattern(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_NAME = late_pattern(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace ``${VAR}`` and ``${VAR:-default}`` in a value of the config; ``$${`` stays ``${``.

    The default also stands in for an empty variable. Nothing is ever run.

    Raises:
        ConfigurationError: A variable is not set and has no default, or the reference is malformed.
    """

    def replace(found: re.Match[str]) -> str:
        if found.group() == "$${":
            return "${"
        parts = _NAME.fullmatch(found.group(1) or "")
        if parts is None:
            raise ConfigurationError(
                f"{found.group()[:40]!r} in the config is not ${{NAME}} or ${{NAME:-default}}; correct it."
            )
        name, default = parts.groups()
        value = environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise ConfigurationError(
                f"The environment variable {name}, which the config uses, is not set;"
                f" set it or write ${{{name}:-default}}."
            )
        return value

    return _REFERENCE.sub(replace, text)


def parse_value(text: str) -> Any:
    """Return ``text`` as a TOML value, or as it is when it is none (dates stay text)."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    if set(parsed) != {"value"}:
        return text
    value = parsed["value"]
    return text if isinstance(value, date | datetime | time) else value


def environment_layer(environ: Mapping[str, str], below: Mapping[str, Any]) -> Layer:
    """Return the layer of ``AAR_SECTION__KEY`` variables; empty ones count as not set.

    Args:
        environ: The process's environment, never a project's ``.env``.
        below: Values of the lower layers: their names of providers and servers tell whether a ``_`` in a
            variable stands for a dash.
    """
    layer = Layer("environment", {})
    for variable, text in sorted(environ.items()):
        if variable.startswith(_PREFIX) and "__" in variable[len(_PREFIX) + 1 :] and text:
            path = _variable_path(variable[len(_PREFIX) :].split("__"), below)
            _put(layer, path, text, f"The environment variable {variable}")
    return layer


def flag_layer(flags: Mapping[str, object], sets: Sequence[str]) -> Layer:
    """Return the layer of flags: values by dotted key, then each ``--set KEY=VALUE``.

    Raises:
        UsageError: A ``--set`` has no ``=`` or no key.
    """
    layer = Layer("flags", {})
    for key, value in flags.items():
        path = split_key(key)
        if value is not None and path:
            store(layer.values, path, list(cast("tuple[Any]", value)) if isinstance(value, tuple) else value)
            layer.places[path] = f"The flag for {key}"
    for item in sets:
        key, equals, text = item.partition("=")
        path = split_key(key)
        if not equals or not path:
            raise UsageError(f"--set {item!r} is not KEY=VALUE with a dotted key, as in model.retries=3.")
        _put(layer, path, text.strip(), f"--set {key.strip()}")
    return layer


def _put(layer: Layer, path: KeyPath, text: str, place: str) -> None:
    text = clean_text(text)
    try:
        store(layer.values, path, parse_value(text))
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from error
    layer.places[path] = place
    layer.raw[path] = text


def _variable_path(parts: Sequence[str], below: Mapping[str, Any]) -> KeyPath:
    path: KeyPath = ()
    for part in parts:
        path = (*path, _variable_key(path, part, below))
    return path


def _variable_key(table: KeyPath, part: str, below: Mapping[str, Any]) -> str:
    """Return the key that ``part`` of a variable's name means in ``table``."""
    if is_section(annotation_at(table)):
        return part.lower()
    if table and table[-1] == "env":
        return part
    existing = lookup(below, table)
    if isinstance(existing, Mapping):
        for key in cast("Mapping[str, Any]", existing):
            if key.lower().replace("-", "_") == part.lower():
                return key
    dashed = table in (("providers",), ("mcp", "servers")) or table[-1:] == ("headers",)
    return part.lower().replace("_", "-") if dashed else part.lower()
