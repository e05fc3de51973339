"""MCP servers: how they stand, starting one anew, signing in, and their prompts as commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from aar.commands.base import (
    Command,
    Context,
    Failure,
    Result,
    Submit,
    Table,
    Text,
    fence,
    one_line,
    starting_with,
)
from aar.commands.registry import Registry
from aar.protocol.errors import ToolFailure, UsageError

if TYPE_CHECKING:
    from aar.extensions.mcp import MCPBridge
    from aar.extensions.mcp_link import ServerStatus

_VERBS = ("restart", "login", "logout", "approve")
_NONE = "There are no MCP servers here; `aar mcp add` adds one, and docs/mcp.md tells more."
_STDERR_LINES = 20


async def _mcp(context: Context, argument: str) -> Result:
    """Show all servers or one, or do something with one."""
    bridge = context.runtime.servers.bridge
    if bridge is None:
        return Text(_NONE)
    words = argument.split()
    if not words:
        return _all(bridge)
    if len(words) == 1 and words[0] in bridge.links:
        return _one(bridge, words[0])
    if len(words) == 2 and words[0] in _VERBS:
        return await _do(context, bridge, words[0], words[1])
    if len(words) == 1 and words[0] not in _VERBS:
        return Failure(f"There is no MCP server {words[0]!r}; there are: {', '.join(bridge.links)}.")
    return Failure(f"Write /mcp, /mcp NAME or /mcp {'|'.join(_VERBS)} NAME.")


def _all(bridge: MCPBridge) -> Result:
    rows = tuple(
        (
            item.name,
            item.state,
            str(item.tools) if item.state == "ready" else "",
            one_line(item.detail or item.server or item.where, 80),
        )
        for item in bridge.status()
    )
    found = sum(len(link.tools) for link in bridge.links.values())
    note = f"{found} tools; the model searches for them." if bridge.searching else "/mcp NAME tells more."
    return Table("MCP servers", ("name", "state", "tools", "what is known"), rows, note, frozenset({2}))


def _one(bridge: MCPBridge, name: str) -> Result:
    """Return all that is known of a server; its own words as code, so that they draw nothing."""
    status = next(item for item in bridge.status() if item.name == name)
    link = bridge.links[name]
    facts = [f"**{name}**: {status.state}" + (f". {status.detail}" if status.detail else "")]
    facts += [f"- {label}: {value}" for label, value in _facts(status) if value]
    listed = [str(tool.get("name")) for tool in link.tools]
    if listed:
        facts.append(f"\nTools:\n{fence(', '.join(listed))}")
    last = status.stderr.strip().splitlines()[-_STDERR_LINES:]
    if last:
        facts.append("\nThe end of its standard error:\n" + fence("\n".join(last)))
    return Text("\n".join(facts))


def _facts(status: ServerStatus) -> list[tuple[str, str]]:
    counts = f"{status.tools} tools, {status.resources} resources, {status.prompts} prompts"
    return [
        ("command or address", f"`{status.where}`"),
        ("says it is", status.server),
        ("has", counts if status.state == "ready" else ""),
        ("started again", f"{status.restarts} times" if status.restarts else ""),
        ("changed since you accepted them", ", ".join(status.changed_tools)),
    ]


async def _do(context: Context, bridge: MCPBridge, verb: str, name: str) -> Result:
    if name not in bridge.links:
        return Failure(f"There is no MCP server {name!r}; there are: {', '.join(bridge.links)}.")
    servers = context.runtime.servers
    if verb == "login":
        address = await servers.login(name, context.session)
        return Text(
            f"Open this page to sign in to {name}; the server is started when you did:\n\n{address}"
            if address
            else f"{name} lets everybody in; there is nothing to sign in to."
        )
    if verb == "logout":
        gone = await servers.logout(name)
        return Text(f"The tokens of {name} are forgotten." if gone else f"You are not signed in to {name}.")
    ready = await (bridge.restart(name) if verb == "restart" else bridge.approve(name))
    link = bridge.links[name]
    if ready:
        return Text(f"{name} is ready, with {len(link.tools)} tools.")
    return Failure(f"{name} cannot be used: {link.status().detail or link.state}")


def _completed(context: Context, text: str) -> Sequence[str]:
    bridge = context.runtime.servers.bridge
    names = list(bridge.links) if bridge is not None else []
    return starting_with([*names, *(f"{verb} {name}" for verb in _VERBS for name in names)], text)


def follow_prompts(registry: Registry, bridge: MCPBridge | None) -> None:
    """Keep a command ``/mcp__SERVER__PROMPT`` in ``registry`` for each prompt that servers have now."""
    if bridge is None:
        return
    added: set[str] = set()

    def update() -> None:
        for name in added:
            registry.remove(name)
        added.clear()
        for server, prompt in bridge.prompts():
            command = _prompt_command(bridge, server, prompt)
            if registry.find(command.name) is None:
                registry.add(command)
                added.add(command.name)

    bridge.listeners.append(update)
    update()


def _prompt_command(bridge: MCPBridge, server: str, prompt: dict[str, Any]) -> Command:
    original = str(prompt.get("name") or "prompt")
    plain = "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in original)[:64].lower()
    name = f"mcp__{server.lower()}__{plain}"
    wanted = [str(item.get("name")) for item in cast("list[dict[str, Any]]", prompt.get("arguments") or [])]

    async def run(context: Context, argument: str) -> Result:
        given = _given(argument, wanted)
        try:
            text = await bridge.prompt(server, original, given)
        except ToolFailure as error:
            raise UsageError(error.message) from error
        return Submit(text, note=f"the prompt {original} of the MCP server {server}")

    summary = one_line(str(prompt.get("description") or f"A prompt of the MCP server {server}."), 200)
    return Command(name, summary, run, " ".join(f"[{word.upper()}]" for word in wanted), "more")


def _given(argument: str, wanted: Sequence[str]) -> dict[str, str]:
    """Return the arguments of a prompt by name: ``NAME=VALUE``, else in order, the last takes the rest."""
    if not wanted:
        return {}
    try:
        words = shlex.split(argument)
    except ValueError:
        words = argument.split()
    pairs = [word.partition("=") for word in words]
    named = {key: value for key, mark, value in pairs if mark and key in wanted}
    rest = [word for word in words if word.partition("=")[0] not in named]
    free = [name for name in wanted if name not in named]
    if len(rest) > len(free) > 0:
        rest = [*rest[: len(free) - 1], " ".join(rest[len(free) - 1 :])]
    return {**named, **dict(zip(free, rest, strict=False))}


def commands() -> tuple[Command, ...]:
    """Return the commands of this module."""
    return (
        Command(
            "mcp",
            "Show the MCP servers; start one anew, or sign in to it.",
            _mcp,
            "[NAME|restart NAME|login NAME|logout NAME|approve NAME]",
            "look",
            complete=_completed,
            example="/mcp restart docs",
        ),
    )
