"""Reading the layers of the configuration and putting them together (DESIGN 7).

built-in < user < profile < project < ``--config FILE`` < environment < flags; ``managed.toml`` tightens last.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from aar.config.environment import environment_layer, flag_layer
from aar.config.files import UnusableFileError, read_regular
from aar.config.paths import Paths, project_root
from aar.config.schema import Config, PermissionMode
from aar.config.tighten import UNIONS, leaves, managed_part, project_part
from aar.config.toml_lines import KeyPath, join_key
from aar.config.validate import Layer, build, check, lookup, problems
from aar.protocol.errors import ConfigurationError

MANAGED_FILE = Path("/etc/aar/managed.toml")
PROJECT_FILE = Path(".aar/config.toml")
_MAX_BYTES = 1_000_000
_RULE_KINDS = ("allow", "ask", "deny")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from.

    Attributes:
        layer: ``user profile project config environment flags managed``.
        file: The file, for layers that are files.
        place: The same for people: file, variable or flag.
    """

    layer: str
    file: Path | None
    _source: Layer = field(repr=False, compare=False)
    _path: KeyPath = field(repr=False, compare=False)

    @property
    def path(self) -> KeyPath:
        """The keys that lead to the value."""
        return self._path

    @property
    def line(self) -> int | None:
        """Line in `file`, from 1; looked up when asked."""
        return self._source.line(self._path)

    @property
    def place(self) -> str:
        """File with line, environment variable or flag."""
        return self._source.where(self._path)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The configuration with its history.

    Attributes:
        config: All settings.
        origins: Origin by dotted key; what is missing is built in.
        notices: Sentences for the user: keys that were refused.
        rule_layers: ``{layer: {"allow" | "ask" | "deny": rules}}`` of layers that have rules.
        mode_ceiling: The loosest permission mode that ``managed.toml`` lets anybody choose, also later.
        managed_budget: ``[budget]`` of ``managed.toml``, which nobody may raise later either.
    """

    config: Config
    origins: dict[str, Origin]
    notices: list[str]
    rule_layers: dict[str, dict[str, tuple[str, ...]]]
    mode_ceiling: PermissionMode | None = None
    managed_budget: Mapping[str, float] = field(default_factory=dict[str, float])


def load_config(
    cwd: Path,
    *,
    paths: Paths,
    trusted: bool,
    config_file: Path | None = None,
    profile: str | None = None,
    flags: Mapping[str, object] | None = None,
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    managed_file: Path = MANAGED_FILE,
) -> LoadedConfig:
    """Read all layers and return the settings that hold.

    Args:
        cwd: Folder in which aar was started; its project's config is read when ``trusted``.
        paths: aar's folders.
        trusted: Whether the user trusts the project as it is now.
        config_file: ``--config FILE``.
        profile: ``--profile NAME``: ``[profiles.NAME]`` of the user's config or of ``config_file``.
        flags: Values by dotted key; ``None`` values are flags that were not given.
        sets: ``KEY=VALUE`` of each ``--set``.
        environ: Environment; none: the process's own.
        managed_file: The system's file that can only tighten.

    Raises:
        ConfigurationError: A file, key or value is wrong; the message names the place.
        UsageError: A ``--set`` is not ``KEY=VALUE``.
    """
    stack = _Stack()
    user = _file_layer("user", paths.user_config)
    explicit = None if config_file is None else _explicit_layer(config_file)
    profiles = {layer.name: layer.values.pop("profiles", {}) for layer in (user, explicit) if layer}
    chosen = _profile_layers(profile, user, explicit, profiles)
    stack.add(user)
    stack.add(chosen["user"])
    if trusted:
        stack.add_project(_project_layer(cwd))
    stack.add(explicit)
    stack.add(chosen["config"])
    stack.add(environment_layer(os.environ if environ is None else environ, stack.values))
    stack.add(flag_layer(flags or {}, sets))
    return stack.finish(_file_layer("managed", managed_file))


def validate_file(file: Path) -> list[str]:
    """Return one sentence for each problem of a config file, profiles included; empty: it is right.

    Raises:
        ConfigurationError: It is missing, unreadable or not TOML.
    """
    layer = _explicit_layer(file)
    profiles = layer.values.pop("profiles", {})
    found = problems(layer)
    for name, values in _tables(layer, profiles).items():
        found += problems(_nested(layer, name, values))
    return found


def setting(config: Config, key: str) -> Any:
    """Return the value of a dotted key, for ``aar config get``.

    Raises:
        ConfigurationError: There is no such key.
    """
    from aar.config.toml_lines import split_key
    from aar.config.validate import nearest

    path = split_key(key)
    value: Any = config
    for part in path or ("",):
        if isinstance(value, Mapping) and part in value:
            value = cast("Mapping[str, Any]", value)[part]
        elif isinstance(value, BaseModel) and part in _keys(value):
            value = getattr(value, part)
        else:
            near = nearest(path) if path else None
            hint = f"; did you mean {near}?" if near else "; aar config show lists all keys."
            raise ConfigurationError(f"{key} is not a known key{hint}")
    return value


def _keys(model: BaseModel) -> set[str]:
    return {*type(model).model_fields, *(model.__pydantic_extra__ or {})}


class _Stack:
    """Layers as they are put on each other."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.notices: list[str] = []
        self.rules: dict[str, dict[str, tuple[str, ...]]] = {}

    def add(self, layer: Layer | None, values: dict[str, Any] | None = None) -> None:
        if layer is None or not layer.values:
            return
        if values is None:
            check(layer)
            values = layer.values
        if layer.name != "project":
            self._take_back(values)
        _merge(self.values, values)
        for path, _value in leaves(values):
            self.origins[join_key(path)] = Origin(layer.name, layer.file, layer, path)
        self._add_rules(layer.name, values)

    def _take_back(self, values: Mapping[str, Any]) -> None:
        """Drop a project's server of a name that the user defines too: headers must not meet its address."""
        for name in lookup(values, ("mcp", "servers")) or ():
            key = join_key(("mcp", "servers", name)) + "."
            theirs = [k for k, o in self.origins.items() if k.startswith(key) and o.layer == "project"]
            if theirs:
                del self.values["mcp"]["servers"][name]
                self.origins = {k: o for k, o in self.origins.items() if k not in theirs}
                self.notices.append(f"The project's MCP server {name!r} is ignored; the user has one too.")

    def _add_rules(self, name: str, values: Mapping[str, Any]) -> None:
        for kind in _RULE_KINDS:
            rules = lookup(values, ("permissions", kind))
            if rules:
                kinds = self.rules.setdefault(name, dict.fromkeys(_RULE_KINDS, ()))
                kinds[kind] = tuple(dict.fromkeys((*kinds[kind], *rules)))

    def add_project(self, layer: Layer | None) -> None:
        if layer is None:
            return
        refused = {key: layer.values.pop(key) for key in ("profiles", "trust") if key in layer.values}
        check(layer)
        layer.values |= refused
        kept, notices = project_part(layer, self.values)
        self.notices += notices
        self.add(layer, kept)

    def finish(self, managed: Layer | None) -> LoadedConfig:
        ceiling: PermissionMode | None = None
        budget: dict[str, float] = {}
        if managed is not None:
            check(managed)
            ceiling = lookup(managed.values, ("permissions", "mode"))
            budget = managed.values.get("budget", {})
            kept, notices = managed_part(managed, self.values)
            self.notices += notices
            self._replace(managed, kept)
        return LoadedConfig(build(self.values), self.origins, self.notices, self.rules, ceiling, budget)

    def _replace(self, managed: Layer, kept: dict[str, Any]) -> None:
        """Put the tightened values in; rules of the managed layer are its own, not all that hold."""
        own = managed.values.get("permissions", {})
        self.add(managed, kept)
        self.rules.pop(managed.name, None)
        self._add_rules(managed.name, {"permissions": {k: own[k] for k in ("ask", "deny") if k in own}})


def _merge(base: dict[str, Any], over: Mapping[str, Any], prefix: KeyPath = ()) -> None:
    for key, value in over.items():
        path = (*prefix, key)
        old = base.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            _merge(cast("dict[str, Any]", old), cast("dict[str, Any]", value), path)
        elif isinstance(value, dict):
            base[key] = {}
            _merge(base[key], cast("dict[str, Any]", value), path)
        elif path[0] == "hooks" and isinstance(old, list) and isinstance(value, list):
            base[key] = [*cast("list[Any]", old), *cast("list[Any]", value)]
        elif path in UNIONS:
            base[key] = list(dict.fromkeys([*cast("list[str]", old or []), *value]))
        else:
            base[key] = value


def _project_layer(cwd: Path) -> Layer | None:
    root = project_root(cwd)
    return _file_layer("project", root / PROJECT_FILE, inside=root)


def _file_layer(name: str, file: Path, *, inside: Path | None = None) -> Layer | None:
    try:
        data = read_regular(file, _MAX_BYTES, inside=inside)
    except UnusableFileError as error:
        raise ConfigurationError(f"{file} cannot be read: {error}. Repair it or move it away.") from error
    return None if data is None else _parse(name, file, data)


def _explicit_layer(file: Path) -> Layer:
    """Read ``--config FILE``, which the user named: a pipe of the shell is welcome too."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{file} cannot be read: {reason}. Check the name of the file.") from error
    return _parse("config", file, data)


def _parse(name: str, file: Path, data: bytes) -> Layer:
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(f"{file} is larger than {_MAX_BYTES:,} bytes; that is no config file.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{file}, line {line}: this is not UTF-8; save the file as UTF-8."
        ) from error
    try:
        return Layer(name, tomllib.loads(text), file, text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(_syntax_sentence(file, text, str(error))) from error


def _syntax_sentence(file: Path, text: str, message: str) -> str:
    found = re.search(r" \(at line (\d+), column \d+\)$", message)
    line = found.group(1) if found else str(text.count("\n") + 1)
    reason = re.sub(r" \(at .*\)$", "", message)
    return f"{file}, line {line}: this is not TOML: {reason[:1].lower()}{reason[1:]}."


def _nested(layer: Layer, profile: str, values: dict[str, Any]) -> Layer:
    return Layer("profile", values, layer.file, layer.text, ("profiles", profile))


def _tables(layer: Layer, profiles: object) -> dict[str, dict[str, Any]]:
    tables = cast("dict[str, Any]", profiles)
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigurationError(f"{layer.where(('profiles',))}: expected tables, as in [profiles.NAME].")
    return tables


def _profile_layers(
    profile: str | None, user: Layer | None, explicit: Layer | None, profiles: Mapping[str, Any]
) -> dict[str, Layer | None]:
    """Return the chosen profile as layers over the files that define it."""
    found: dict[str, Layer | None] = {"user": None, "config": None}
    names: list[str] = []
    for layer in (user, explicit):
        if layer is None:
            continue
        tables = _tables(layer, profiles[layer.name])
        names += tables
        if profile is not None and profile in tables:
            found[layer.name] = _nested(layer, profile, tables[profile])
    if profile is not None and profile not in names:
        have = f"there are: {', '.join(sorted(names))}" if names else "there are none"
        raise ConfigurationError(f"There is no profile {profile!r} in the config; {have}.")
    return found
