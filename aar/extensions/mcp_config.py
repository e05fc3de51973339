"""Which MCP servers there are: aar's own settings, and the files of other assistants.

Known shapes of other files: ``mcpServers`` (Claude Code, Cursor, Gemini CLI, Cline, Windsurf),
``servers`` (VS Code), ``mcp_servers`` in TOML (Codex CLI), ``mcp`` (opencode) and ``context_servers`` (Zed).
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import ValidationError

from aar.config.environment import expand
from aar.config.files import UnusableFileError, read_regular
from aar.config.schema import McpServerConfig
from aar.protocol.errors import ConfigurationError
from aar.protocol.late import late_pattern

PROJECT_FILES = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json")
"""Files of a project that are read after trust; `aar.config.trust` watches the same."""
_MAX_BYTES = 1_000_000
_NAME = late_pattern(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,47}")
_TABLES = ("mcpServers", "servers", "mcp_servers", "context_servers", "mcp")

Scope = Literal["user", "project"]


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server as aar will use it.

    Attributes:
        name: As in the tools' names.
        config: Its settings, variables not expanded.
        scope: ``project`` for one that the project's files define.
        source: Where it is defined, for people.
    """

    name: str
    config: McpServerConfig
    scope: Scope
    source: str

    @property
    def kind(self) -> Literal["stdio", "http"]:
        """How it is spoken to."""
        return "stdio" if self.config.command else "http"

    @property
    def where(self) -> str:
        """Command line or address, for people; variables stay unexpanded."""
        config = self.config
        return config.url or " ".join([config.command or "", *config.args])

    def fingerprint(self) -> str:
        """Return the SHA-256 of all that says what runs or where requests go; hex."""
        config = self.config
        parts = (
            config.command,
            config.args,
            sorted(config.env.items()),
            config.cwd,
            config.url,
            config.transport,
            sorted(config.headers.items()),
            config.sandbox,
            config.network,
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def expanded(self, environ: Mapping[str, str]) -> McpServerConfig:
        """Return the settings with ``${VAR}`` replaced.

        Raises:
            ConfigurationError: A variable is not set.
        """
        config = self.config
        try:
            return config.model_copy(
                update={
                    "command": config.command and expand(config.command, environ),
                    "args": tuple(expand(text, environ) for text in config.args),
                    "env": {key: expand(text, environ) for key, text in config.env.items()},
                    "cwd": config.cwd and expand(config.cwd, environ),
                    "url": config.url and expand(config.url, environ),
                    "headers": {key: expand(text, environ) for key, text in config.headers.items()},
                }
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"MCP server {self.name} ({self.source}): {error}") from error


def check_name(name: str) -> str:
    """Return ``name`` if a server can have it.

    Raises:
        ConfigurationError: It cannot; the name stands in the names of tools.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{name[:60]!r} cannot be the name of an MCP server: take letters, digits, '-' and single '_', "
            "at most 48 of them."
        )
    return name


def safe_name(name: str) -> str:
    """Return ``name`` as a server can have it: files of others allow more."""
    folded = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9-]+", "_", name)).strip("_-")
    return check_name(folded[:48].rstrip("_-"))


def make_spec(name: str, config: McpServerConfig, scope: Scope, source: str) -> ServerSpec:
    """Return a checked server.

    Raises:
        ConfigurationError: The name cannot be used, or it has not exactly one of command and url.
    """
    check_name(name)
    if bool(config.command) == bool(config.url):
        raise ConfigurationError(
            f"MCP server {name} ({source}): give it either a command (stdio) or a url (HTTP)."
        )
    if config.url and "://" in config.url and not config.url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"MCP server {name} ({source}): its url must begin with http:// or https://."
        )
    return ServerSpec(name, config, scope, source)


def read_servers(file: Path, scope: Scope, *, inside: Path | None = None) -> dict[str, ServerSpec] | None:
    """Return the servers that a file of another assistant defines; ``None`` when there is no such file.

    Raises:
        ConfigurationError: The file cannot be read, or what it says is not understood.
    """
    try:
        data = read_regular(file, _MAX_BYTES, inside=inside)
    except UnusableFileError as error:
        raise ConfigurationError(f"{file} cannot be read: {error}.") from error
    if data is None:
        return None
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(f"{file} is larger than {_MAX_BYTES:,} bytes; that is no list of servers.")
    return parse_servers(_decoded(file, data), scope, str(file))


def _decoded(file: Path, data: bytes) -> dict[str, Any]:
    text = data.decode("utf-8-sig", "replace")
    try:
        found = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if file.suffix == ".toml" else "JSON"
        raise ConfigurationError(f"{file} is not {kind}: {error}.") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{file} must hold an object with mcpServers.")
    return cast("dict[str, Any]", found)


def parse_servers(tables: Mapping[str, Any], scope: Scope, source: str) -> dict[str, ServerSpec]:
    """Return the servers in one of the known shapes.

    Raises:
        ConfigurationError: None of the shapes fits, or a server is not understood.
    """
    found = next((tables[key] for key in _TABLES if isinstance(tables.get(key), dict)), None)
    if found is None:
        raise ConfigurationError(f'{source} defines no MCP servers; it needs {{"mcpServers": {{…}}}}.')
    servers = cast("dict[str, Any]", found)
    if isinstance(servers.get("servers"), dict):  # [mcp.servers.NAME], aar's own shape
        servers = cast("dict[str, Any]", servers["servers"])
    specs: dict[str, ServerSpec] = {}
    for raw_name, value in servers.items():
        if not isinstance(value, dict):
            raise ConfigurationError(f"{source}: the MCP server {raw_name!r} must be an object.")
        name = safe_name(raw_name)
        if name in specs:
            raise ConfigurationError(f"{source}: two MCP servers would be called {name}; rename one of them.")
        config = _server_config(cast("dict[str, Any]", value), f"{source}: MCP server {raw_name}")
        specs[name] = make_spec(name, config, scope, source)
    return specs


def _server_config(table: dict[str, Any], where: str) -> McpServerConfig:
    command: Any = table.get("command")
    args: Any = table.get("args", ())
    if isinstance(command, list):
        command, *args = cast("list[Any]", command) or [None]
    elif isinstance(command, dict):
        inner = cast("dict[str, Any]", command)
        command, args = inner.get("path"), inner.get("args", ())
        table = {**table, "env": inner.get("env", {})}
    fields: dict[str, Any] = {
        "command": command,
        "args": tuple(args or ()),
        "env": table.get("env") or table.get("environment") or {},
        "cwd": table.get("cwd"),
        "url": None if command else table.get("httpUrl") or table.get("url") or table.get("serverUrl"),
        "headers": _headers(table),
        "transport": "sse" if _kind(table) == "sse" else "auto",
        "enabled": table.get("enabled", not table.get("disabled", False)),
    }
    timeout = table.get("startup_timeout_sec") or table.get("startup_timeout")
    if timeout is not None:
        fields["startup_timeout"] = timeout
    own = ("required", "lazy", "sandbox", "network", "cache_ttl_s", "tools")
    fields.update({key: table[key] for key in own if key in table and not isinstance(table[key], dict)})
    try:
        return McpServerConfig.model_validate(_other_variables(fields))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{where}: {key}: {first['msg']}.") from error


def _kind(table: Mapping[str, Any]) -> str:
    return str(table.get("type") or table.get("transport") or "").lower()


def _headers(table: Mapping[str, Any]) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    for key in ("headers", "http_headers"):
        found = table.get(key)
        if isinstance(found, dict):
            headers.update(cast("dict[str, Any]", found))
    variable = table.get("bearer_token_env_var")
    if isinstance(variable, str):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    return headers


_OTHER_VARIABLE = late_pattern(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}|\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def _other_variables(value: Any) -> Any:
    """Write ``${env:NAME}`` and ``{env:NAME}`` as ``${NAME}``, and VS Code's names of the folder as ``.``."""
    if isinstance(value, str):
        value = _OTHER_VARIABLE.sub(lambda found: f"${{{found[1] or found[2]}}}", value)
        return value.replace("${workspaceFolder}", ".").replace("${workspaceRoot}", ".")
    if isinstance(value, dict):
        return {key: _other_variables(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple | list):
        return tuple(_other_variables(item) for item in cast("Iterable[Any]", value))
    return value


def gather(
    configured: Mapping[str, McpServerConfig],
    project_names: Iterable[str],
    workspace: Path,
    *,
    trusted: bool,
    files: Iterable[Path] = (),
) -> tuple[dict[str, ServerSpec], list[str]]:
    """Return all servers that hold, and sentences about files that cannot be used.

    A name of the user's own settings comes before one of ``files`` (``--mcp-config``), before the project's.

    Args:
        configured: ``[mcp.servers]`` of the configuration.
        project_names: Those of them that the project's config defines.
        workspace: Root of the project.
        trusted: Whether the project's files are read.
        files: ``--mcp-config`` files; what is wrong in them is an error.

    Raises:
        ConfigurationError: A setting or a file that the user named is wrong.
    """
    theirs = set(project_names)
    found: dict[str, ServerSpec] = {}
    notices: list[str] = []
    for name, config in configured.items():
        scope: Scope = "project" if name in theirs else "user"
        source = ".aar/config.toml" if scope == "project" else "config"
        found[name] = make_spec(name, config, scope, source)
    named: dict[str, ServerSpec] = {}
    for file in files:
        servers = read_servers(file.expanduser(), "user")
        if servers is None:
            raise ConfigurationError(f"--mcp-config {file}: there is no such file.")
        named.update(servers)
    found = {
        **{name: spec for name, spec in found.items() if spec.scope == "project"},
        **named,
        **{name: spec for name, spec in found.items() if spec.scope == "user"},
    }
    for relative in PROJECT_FILES if trusted else ():
        try:
            servers = read_servers(workspace / relative, "project", inside=workspace) or {}
        except ConfigurationError as error:
            notices.append(f"MCP servers of the project are left out: {error}")
            continue
        for name, spec in servers.items():
            found.setdefault(name, replace(spec, source=relative, config=_walled(spec.config)))
    return {name: spec for name, spec in found.items() if spec.config.enabled}, notices


def _walled(config: McpServerConfig) -> McpServerConfig:
    """A project may not open the sandbox."""
    return config.model_copy(update={"sandbox": True, "network": False})
