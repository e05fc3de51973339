"""``aar mcp``: which MCP servers there are, whether they work, and aar itself as one."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aar.protocol.errors import ConfigurationError, McpError, NotThereError, UsageError
from aar.protocol.state import ExitCode
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.mcp_login import login, logout
from aar.transports.cli.options import base_options, runtime_options, take_runtime_options

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from aar.extensions.mcp import MCPBridge

_FILES = click.option(
    "--mcp-config",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="More MCP servers.",
)


@click.group(cls=NearestGroup)
def mcp() -> None:
    """List, add, remove and try MCP servers, or serve aar as one."""


mcp.add_command(login)
mcp.add_command(logout)


@mcp.command("list")
@base_options
@_FILES
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_servers(as_json: bool, files: tuple[Path, ...], **options: Any) -> None:
    """List the servers of this folder, without starting any."""
    from aar.runtime.base import open_base
    from aar.runtime.mcp import find_servers

    base = open_base(**options)
    specs, notices = find_servers(base, files)
    for notice in (*base.notices, *notices):
        click.echo(f"aar: {sanitize(notice)}", err=True)
    if as_json:
        for spec in specs.values():
            fields = {
                "name": spec.name,
                "kind": spec.kind,
                "where": spec.where,
                "scope": spec.scope,
                "source": spec.source,
                "required": spec.config.required,
                "lazy": spec.config.lazy,
            }
            click.echo(json.dumps(fields, ensure_ascii=False))
        return
    if not specs:
        click.echo("No MCP servers are set up; `aar mcp add` adds one.")
    rows = [(spec.name, spec.kind, spec.source, spec.where) for spec in specs.values()]
    Console(sanitize).table(rows, header=("NAME", "KIND", "FROM", "COMMAND OR ADDRESS"))


@mcp.command("test")
@base_options
@_FILES
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def test_servers(name: str | None, as_json: bool, files: tuple[Path, ...], **options: Any) -> int:
    """Start one server, or all, and tell whether they work and what they offer."""
    return asyncio.run(_test(options, files, name, as_json=as_json))


async def _test(options: dict[str, Any], files: tuple[Path, ...], name: str | None, *, as_json: bool) -> int:
    async with _bridge(options, files, name) as bridge:
        await asyncio.gather(
            *(link.ready(link.spec.config.startup_timeout + 5) for link in bridge.links.values())
        )
        found = bridge.status()
        tools = {
            link.spec.name: [str(tool.get("name")) for tool in link.tools] for link in bridge.links.values()
        }
    for status in found:
        if as_json:
            click.echo(json.dumps({**asdict(status), "tool_names": tools[status.name]}, ensure_ascii=False))
            continue
        counts = f"{status.tools} tools, {status.resources} resources, {status.prompts} prompts"
        click.echo(f"{status.name}: {status.state}" + (f", {counts}" if status.state == "ready" else ""))
        for line in (status.server, status.detail, ", ".join(tools[status.name])):
            if line:
                click.echo(f"  {sanitize(line)}")
        if status.state != "ready" and status.stderr.strip():
            click.echo(
                "  standard error, its end:\n"
                + "\n".join(f"    {t}" for t in status.stderr.splitlines()[-20:])
            )
    return ExitCode.OK if all(status.state == "ready" for status in found) else ExitCode.CONFIGURATION


@mcp.command()
@base_options
@_FILES
@click.argument("name")
def approve(name: str, files: tuple[Path, ...], **options: Any) -> int:
    """Accept a server's command and tools as they are now."""
    return asyncio.run(_approve(options, files, name))


async def _approve(options: dict[str, Any], files: tuple[Path, ...], name: str) -> int:
    async with _bridge(options, files, name) as bridge:
        if not await bridge.approve(name):
            raise McpError(f"The MCP server {name} cannot be used: {sanitize(bridge.links[name].detail)}")
        tools = len(bridge.links[name].tools)
    click.echo(f"{name} is accepted as it is now, with {tools} tools.")
    return ExitCode.OK


@asynccontextmanager
async def _bridge(
    options: dict[str, Any], files: tuple[Path, ...], name: str | None
) -> AsyncGenerator[MCPBridge]:
    """Yield a bridge to the servers of this folder, or to one of them; nothing is left running."""
    from aar.runtime.base import open_base
    from aar.runtime.mcp import make_bridge
    from aar.safety.spawn import ProcessSpawner
    from aar.tools.registry import ToolRegistry

    base = open_base(**options)
    notices = list(base.notices)
    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)
    try:
        bridge = make_bridge(base, spawner, ToolRegistry(), notices, files)
        for notice in notices:
            click.echo(f"aar: {sanitize(notice)}", err=True)
        if bridge is None or (name is not None and name not in bridge.links):
            known = f"there are: {', '.join(bridge.links)}" if bridge is not None else "there are none"
            which = f"MCP server {name!r}" if name else "MCP server here"
            raise NotThereError(f"There is no {which}; {known}. `aar mcp add` adds one.")
        if name is not None:
            bridge.links = {name: bridge.links[name]}
        try:
            yield bridge
        finally:
            await bridge.aclose()
    finally:
        spawner.close()


@mcp.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--env", "-e", "env", multiple=True, metavar="KEY=VALUE", help="Environment of a stdio server.")
@click.option("--header", "headers", multiple=True, metavar="NAME: VALUE", help="Header for an HTTP server.")
@click.option("--transport", type=click.Choice(["auto", "http", "sse"]), help="How a URL is spoken to.")
@click.option("--lazy", is_flag=True, help="Start it when it is first needed.")
@click.option("--required", is_flag=True, help="No run without it.")
@click.option("--network", is_flag=True, help="Let it use the network inside the wall.")
@click.option("--no-sandbox", is_flag=True, help="Run it outside of the wall.")
def add(
    name: str,
    target: str,
    args: tuple[str, ...],
    env: tuple[str, ...],
    headers: tuple[str, ...],
    transport: str | None,
    lazy: bool,
    required: bool,
    network: bool,
    no_sandbox: bool,
) -> None:
    """Add a server to your config: a URL, or a command with its arguments (after --)."""
    from aar.config.paths import paths
    from aar.config.schema import McpServerConfig
    from aar.extensions.mcp_config import check_name, make_spec

    check_name(name)
    fields: dict[str, Any] = {"url": target} if re.match(r"https?://", target) else {"command": target}
    if args:
        fields["args"] = list(args)
    if "url" in fields and (args or env):
        raise UsageError("A URL takes no arguments and no --env; give --header.")
    if env:
        fields["env"] = dict(_pair(text, "=", "--env KEY=VALUE") for text in env)
    if headers:
        fields["headers"] = dict(_pair(text, ":", "--header 'NAME: VALUE'") for text in headers)
    flags = {"lazy": lazy, "required": required, "network": network}
    fields.update({key: True for key, value in flags.items() if value})
    if transport:
        fields["transport"] = transport
    if no_sandbox:
        fields["sandbox"] = False
    make_spec(name, McpServerConfig.model_validate(fields), "user", "command line")
    file = paths().user_config
    if name in _configured(file):
        raise NotThereError(
            f"There is an MCP server {name} in {file}; remove it first (`aar mcp remove {name}`)."
        )
    _change(file, name, fields)
    click.echo(f"{name} is added to {file}. `aar mcp test {name}` tries it.")


@mcp.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a server from your config, and forget what you accepted of it."""
    from aar.config.paths import paths
    from aar.config.schema import McpServerConfig
    from aar.extensions.mcp_config import ServerSpec
    from aar.extensions.mcp_logins import LoginStore
    from aar.extensions.mcp_pins import PinStore

    own = paths()
    found = _configured(own.user_config)
    if name not in found:
        known = f"there are: {', '.join(found)}" if found else "there are none"
        raise NotThereError(f"There is no MCP server {name!r} in {own.user_config}; {known}.")
    _change(own.user_config, name, None)
    spec = ServerSpec(name, McpServerConfig.model_construct(), "user", "config")
    PinStore(own.data / "mcp_pins.json", Path.cwd()).forget(spec)
    LoginStore(own.config).forget(name)
    click.echo(f"{name} is removed from {own.user_config}.")


def _pair(text: str, mark: str, form: str) -> tuple[str, str]:
    key, found, value = text.partition(mark)
    if not found or not key.strip():
        raise UsageError(f"{text!r} is not {form}.")
    return key.strip(), value.strip()


def _configured(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        tables: Any = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}. Repair it first.") from error
    servers: dict[str, Any] = tables.get("mcp", {}).get("servers", {})
    return servers


def _change(file: Path, name: str, fields: dict[str, Any] | None) -> None:
    """Set or remove one server; the rest of the file stays as it is written."""
    import tomlkit

    from aar.config.files import write_atomic
    from aar.config.paths import ensure

    ensure(file.parent)
    document: Any = tomlkit.parse(file.read_text(encoding="utf-8-sig") if file.exists() else "")
    if "mcp" not in document:
        document["mcp"] = tomlkit.table(is_super_table=True)
    if "servers" not in document["mcp"]:
        document["mcp"]["servers"] = tomlkit.table(is_super_table=True)
    servers: Any = document["mcp"]["servers"]
    if fields is None:
        del servers[name]
    else:
        servers[name] = fields
    write_atomic(file, tomlkit.dumps(document).encode())


@mcp.command()
@runtime_options
def serve(**values: Any) -> int:
    """Serve aar's reading tools, and an agent, as an MCP server on standard input and output."""
    from aar.transports.mcp_server import serve_stdio

    return asyncio.run(serve_stdio(take_runtime_options(values)))
