"""Changing one key of a config file and nothing else of it. Imported only when a file is edited."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import tomlkit
import tomlkit.exceptions

from aar.config.environment import parse_value
from aar.config.files import UnusableFileError, cannot_write, read_regular, write_atomic
from aar.config.paths import ensure
from aar.config.toml_lines import KeyPath, join_key, split_key
from aar.config.validate import Layer, annotation_at, check, lookup, store
from aar.protocol.errors import ConfigurationError, StorageError

_MAX_BYTES = 1_000_000


def set_value(file: Path, key: str, value: str) -> Any:
    """Set ``key`` in the TOML file and return the value that was written.

    Comments, order and spacing stay. The result is checked before it replaces the file (0600).

    Args:
        file: Made when it is missing.
        key: Dotted key, ``section.name``; ``profiles.NAME.section.name`` too.
        value: A TOML value; what is none is a string.

    Raises:
        ConfigurationError: The key or value is wrong, or the file is.
        StorageError: The file cannot be written.
    """
    path = _path(key)
    text = _read(file)
    candidate = parse_value(value)
    try:
        document = _checked(file, text, path, candidate)
    except ConfigurationError as error:
        if candidate == value:
            raise
        # A model may be named 123: text, where the schema wants text.
        try:
            candidate, document = value, _checked(file, text, path, value)
        except ConfigurationError:
            raise error from None
    _write(file, document)
    return candidate


def get_value(file: Path, key: str) -> Any:
    """Return the value of ``key`` in the file, or ``None`` when the file does not set it.

    Raises:
        ConfigurationError: The key is none, or the file cannot be read.
    """
    return lookup(_loads(file, _read(file)), _path(key))


def _checked(file: Path, text: str, path: KeyPath, value: Any) -> str:
    document = _edited(file, text, path, value)
    _check(file, document, path)
    return document


def _path(key: str) -> KeyPath:
    path = split_key(key)
    if not path:
        raise ConfigurationError(f"{key!r} is not a dotted key, as in model.name.")
    return path


def _read(file: Path) -> str:
    try:
        data = read_regular(file, _MAX_BYTES)
        text = (data or b"").decode("utf-8-sig")
    except UnusableFileError as error:
        raise ConfigurationError(f"{file} cannot be read: {error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not UTF-8; save the file as UTF-8.") from error
    if len(text) > _MAX_BYTES:
        raise ConfigurationError(f"{file} is larger than {_MAX_BYTES:,} bytes; that is no config file.")
    return text


def _loads(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file} is not TOML: {error}. Correct it first.") from error


def _edited(file: Path, text: str, path: KeyPath, value: Any) -> str:
    """Return the text with the value in it, proven to differ in nothing else."""
    wanted = _loads(file, text)
    store(wanted, path, value)
    try:
        document = tomlkit.parse(text)
        table: Any = document
        for part in path[:-1]:
            if part not in table:
                table[part] = tomlkit.table(is_super_table=part != path[-2])
            table = table[part]
        table[path[-1]] = value
        edited = tomlkit.dumps(cast("Mapping[str, Any]", document))
        if tomllib.loads(edited) == wanted:
            return edited
    except (tomlkit.exceptions.TOMLKitError, tomllib.TOMLDecodeError, TypeError, ValueError):
        pass
    raise ConfigurationError(
        f"{join_key(path)} cannot be changed in {file} without touching the rest; edit the file by hand."
    )


def _check(file: Path, text: str, path: KeyPath) -> None:
    values = tomllib.loads(text)
    if path[0] == "profiles" and len(path) > 2:
        inner = lookup(values, path[:2])
        return check(Layer("profile", inner, file, text, path[:2]))
    values.pop("profiles", None)
    if annotation_at(path) is None:
        alone: dict[str, Any] = {}
        store(alone, path, 0)
        check(Layer("flags", alone, places={path[:1]: "aar config set"}))
    return check(Layer("user", values, file, text))


def _write(file: Path, text: str) -> None:
    ensure(file.parent) if not file.parent.exists() else None
    try:
        write_atomic(file, text.encode())
    except OSError as error:
        raise StorageError(cannot_write(file, error)) from error
