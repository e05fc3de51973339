"""`MCPBridge`: all MCP servers of a session, and their tools in the registry."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from aar.extensions.mcp_config import ServerSpec
from aar.extensions.mcp_link import LinkWorld, ServerLink, ServerStatus
from aar.extensions.mcp_tools import contents, make_tool, resource_text, tool_name
from aar.protocol.errors import McpError, ToolCategory, ToolFailure
from aar.protocol.messages import ContentBlock, ResourceBlock, TextBlock
from aar.protocol.ports import ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.safety.outside import framed
from aar.safety.sanitize import sanitize
from aar.tools.registry import ToolRegistry

__all__ = ["MCPBridge", "ServerSpec", "ServerStatus"]

SEARCH: Final = "mcp_search"
READ_RESOURCE: Final = "mcp_read_resource"
_MENTION = re.compile(r"(?<![\w@/.])@(?P<server>[A-Za-z0-9][\w-]*):(?P<uri>[A-Za-z][\w+.-]*:[^\s<>\"']+)")
_MOST_FOUND = 8
_MAX_RESOURCE = 200_000
_MOST_NAMES = 60


@dataclass(eq=False)
class MCPBridge:
    """All servers of a session.

    Nothing is started, and the SDK is not imported, before `start` or the first use.

    Args:
        specs: The servers.
        world: What they need of their surroundings; its ``changed`` is set here.
        registry: Gets their tools.
        search_above: With more tools than this, the model searches for them.
    """

    specs: Mapping[str, ServerSpec]
    world: LinkWorld
    registry: ToolRegistry
    search_above: int = 40
    links: dict[str, ServerLink] = field(init=False)
    listeners: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """Told when tools, resources or prompts came, went or changed."""
    _names: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    _loaded: dict[str, None] = field(default_factory=dict[str, None])
    _told: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.world.changed = self._on_changed
        self.links = {name: ServerLink(spec, self.world) for name, spec in self.specs.items()}

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all servers that are not lazy, in the background."""
        for link in self.links.values():
            if not link.spec.config.lazy and link.state == "off":
                link.start()

    async def settle(self, timeout_s: float) -> list[str]:
        """Start what is to be started and wait until it is ready; return news for the user.

        Required servers are waited for until they are ready or have failed; others for ``timeout_s`` seconds.

        Raises:
            McpError: A required server cannot be used; no request was sent.
        """
        self.start()
        required = [link for link in self.links.values() if link.spec.config.required]
        await asyncio.gather(*(link.ready(link.spec.config.startup_timeout * 2 + 5) for link in required))
        for link in required:
            if link.state != "ready":
                why = link.detail or f"it is {link.state}"
                raise McpError(
                    f"The MCP server {link.spec.name} is required and cannot be used: {sanitize(why)} "
                    f"Look with `aar mcp test {link.spec.name}`."
                )
        others = [link for link in self.links.values() if not link.spec.config.lazy and link not in required]
        if others and timeout_s > 0:
            await asyncio.gather(*(self._first(link, timeout_s) for link in others))
        return self._news()

    async def _first(self, link: ServerLink, timeout_s: float) -> None:
        """Wait for the first connection; a server that waits to be started again holds nobody up."""
        if link.state == "starting":
            await link.first_try(min(timeout_s, link.spec.config.startup_timeout + 10))

    def _news(self) -> list[str]:
        """Return one sentence for each trouble that was not told yet."""
        found: list[str] = []
        for link in self.links.values():
            # One that is being started again has lost its detail, but not its trouble.
            trouble = link.detail if link.state in ("failed", "changed", "waiting") else ""
            trouble = link.trouble if link.state == "starting" else trouble
            if trouble:
                found.append(f"The MCP server {link.spec.name} is not used: {sanitize(trouble)}")
            elif link.changed_tools:
                names = ", ".join(sorted(link.changed_tools)[:10])
                found.append(
                    f"Tools of the MCP server {link.spec.name} are new or other than you accepted: "
                    f"{sanitize(names)}. A call asks first; `aar mcp approve {link.spec.name}` accepts all."
                )
        fresh = [text for text in found if text not in self._told]
        self._told.update(fresh)
        return fresh

    async def aclose(self) -> None:
        """End all servers."""
        await asyncio.gather(*(link.aclose() for link in self.links.values()))

    def status(self) -> list[ServerStatus]:
        """Return how each server stands, for ``/mcp``."""
        return [link.status() for link in self.links.values()]

    async def restart(self, name: str) -> bool:
        """Start a server anew; tell whether it can be used.

        Raises:
            McpError: There is no such server.
        """
        return await self._link(name).restart()

    async def approve(self, name: str) -> bool:
        """Accept a server's command and tools as they are now; tell whether it can be used.

        Raises:
            McpError: There is no such server.
        """
        link = self._link(name)
        self.world.pins.forget(link.spec)
        await link.restart()
        return link.state == "ready"

    def _link(self, name: str) -> ServerLink:
        link = self.links.get(name)
        if link is None:
            known = f"there are: {', '.join(self.links)}" if self.links else "there are none"
            raise McpError(f"There is no MCP server {name!r}; {known}.")
        return link

    # --- tools --------------------------------------------------------------------------------------------

    def _on_changed(self, link: ServerLink) -> None:
        """Put a server's tools into the registry as they are now."""
        server = link.spec.name
        for name in self._names.pop(server, {}):
            self.registry.remove(name)
        names: dict[str, str] = {}
        taken = self._all_names()
        for tool in link.tools:
            name = tool_name(server, str(tool.get("name")), taken)
            taken[name] = names[name] = str(tool.get("name"))
            self.registry.replace(make_tool(link, tool, name))
        self._names[server] = names
        for listener in tuple(self.listeners):
            listener()

    def _all_names(self) -> dict[str, str]:
        return {name: tool for names in self._names.values() for name, tool in names.items()}

    @property
    def searching(self) -> bool:
        """Whether there are so many tools that the model has to search, or servers that wait to be needed."""
        many = sum(len(names) for names in self._names.values()) > self.search_above
        return many or any(link.spec.config.lazy for link in self.links.values())

    def own_tools(self) -> list[ToolSpec]:
        """Return the bridge's own tools: search, and reading resources."""
        return [self._search_tool(), self._resource_tool()] if self.links else []

    def offered(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the model is shown now; those it searched for stay, in that order."""
        names = [name for names in self._names.values() for name in names]
        own = [spec for spec in self.own_tools() if spec.name != READ_RESOURCE or self._has_resources()]
        if not self.searching:
            shown = names
            own = [spec for spec in own if spec.name != SEARCH]
        elif len(names) <= self.search_above:
            shown = names
        else:
            shown = [name for name in self._loaded if name in self.registry]
        found = [self.registry.get(name) for name in shown]
        return (*own, *(spec for spec in found if spec is not None))

    def has(self, name: str) -> bool:
        """Tell whether ``name`` is a tool of a server or of the bridge itself."""
        return name in (SEARCH, READ_RESOURCE) or any(name in names for names in self._names.values())

    def _has_resources(self) -> bool:
        return any(link.resources for link in self.links.values())

    def _search_tool(self) -> ToolSpec:
        servers = ", ".join(self.links)
        return ToolSpec(
            name=SEARCH,
            description=(
                "Find tools of the connected MCP servers by what they do, and load them: those found can be "
                f"called from the next answer on. Input: query, a few words; server (optional), one of: "
                f"{servers}. Returns names and descriptions of at most {_MOST_FOUND} tools, best first."
            ),
            input_schema={
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What the tool should do."},
                    "server": {"type": "string", "description": "Only tools of this server."},
                },
                "required": ["query"],
                "additionalProperties": False,
            },
            side_effects=frozenset({SideEffect.READ}),
            handler=self._search,
            summary="Find and load tools of MCP servers.",
        )

    async def _search(self, arguments: Any, context: ToolContext) -> ToolOutcome:
        wanted = cast("str | None", arguments.get("server"))
        if wanted is not None and wanted not in self.links:
            raise ToolFailure(
                ToolCategory.NOT_FOUND, f"There is no server {wanted}; there are: {', '.join(self.links)}."
            )
        links = [link for name, link in self.links.items() if wanted in (None, name)]
        await asyncio.gather(*(link.ready(link.spec.config.startup_timeout + 5) for link in links))
        servers = {link.spec.name for link in links}
        names = [name for server, names in self._names.items() if server in servers for name in names]
        specs = [spec for name in names if (spec := self.registry.get(name)) is not None]
        found = rank(str(arguments["query"]), specs)[:_MOST_FOUND]
        if not found:
            text = "No tool fits. " + (
                f"There are: {', '.join(names[:_MOST_NAMES])}" if names else "There are none."
            )
            return ToolOutcome(output=framed(text, SEARCH))
        for spec in found:
            self._loaded.setdefault(spec.name)
        lines = [f"{spec.name}: {spec.description[:400]}" for spec in found]
        return ToolOutcome(output=framed("\n".join(lines), SEARCH))

    # --- resources and prompts ------------------------------------------------------------------------------

    def _resource_tool(self) -> ToolSpec:
        return ToolSpec(
            name=READ_RESOURCE,
            description=(
                "Read a resource of a connected MCP server. Input: server, and uri as the server lists it; "
                "without uri the resources of the server are listed. Returns text, at most "
                f"{_MAX_RESOURCE:,} characters, and images."
            ),
            input_schema={
                "type": "object",
                "properties": {
                    "server": {"type": "string", "description": "Name of the server."},
                    "uri": {"type": "string", "description": "Address of the resource."},
                },
                "required": ["server"],
                "additionalProperties": False,
            },
            side_effects=frozenset({SideEffect.EXTERNAL}),
            handler=self._read_resource,
            summary="Read a resource of an MCP server.",
        )

    async def _read_resource(self, arguments: Any, context: ToolContext) -> ToolOutcome:
        link = self.links.get(str(arguments["server"]))
        if link is None:
            raise ToolFailure(ToolCategory.NOT_FOUND, f"There are the servers: {', '.join(self.links)}.")
        uri = arguments.get("uri")
        if not uri:
            await link.ready(link.spec.config.startup_timeout)
            lines = [
                f"{item.get('uri') or item.get('uriTemplate')}  {item.get('name') or ''}"
                for item in link.resources[:200]
            ]
            return ToolOutcome(output="\n".join(lines) or "It has no resources.")
        items = await link.calls.resource(str(uri), context)
        texts, images = contents([{"type": "resource", "resource": item} for item in items])
        return ToolOutcome(output="\n".join(texts)[:_MAX_RESOURCE] or "It is empty.", images=images)

    def resources(self) -> list[str]:
        """Return what ``@`` can name now, as ``server:uri``."""
        named = (
            f"{name}:{item.get('uri')}"
            for name, link in self.links.items()
            for item in link.resources
            if item.get("uri")
        )
        return [text for text in named if _MENTION.fullmatch(f"@{text}")]

    async def expand_mentions(
        self, content: Sequence[ContentBlock]
    ) -> tuple[tuple[ContentBlock, ...], list[str]]:
        """Return a prompt with each ``@server:uri`` added as a resource block, and problems as sentences."""
        found: dict[str, ResourceBlock] = {}
        problems: list[str] = []
        for match in _mentions(content):
            server, uri = match["server"], match["uri"].rstrip(".,;:!?)")
            link, name = self.links.get(server), f"{server}:{uri}"
            if link is None or name in found:
                continue
            try:
                items = await link.calls.resource(uri, None)
            except ToolFailure as error:
                problems.append(f"@{name} was not attached: {error.message}")
                continue
            text = "\n".join(resource_text(item) for item in items)[:_MAX_RESOURCE]
            found[name] = ResourceBlock(uri=name, text=framed(text, name))
        return (*found.values(), *content), problems

    def prompts(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the servers' prompts, each with its server's name, for slash commands."""
        return [(name, prompt) for name, link in self.links.items() for prompt in link.prompts]

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> str:
        """Return a prompt's text, framed as data that a server wrote.

        Raises:
            McpError: There is no such server.
            ToolFailure: The server failed.
        """
        found = await self._link(server).calls.prompt(name, arguments)
        messages = cast("list[dict[str, Any]]", found.get("messages") or [])
        texts, _images = contents([cast("dict[str, Any]", item.get("content") or {}) for item in messages])
        return "\n\n".join(texts)[:_MAX_RESOURCE]


def _mentions(content: Iterable[ContentBlock]) -> Iterable[re.Match[str]]:
    for block in content:
        if isinstance(block, TextBlock):
            yield from _MENTION.finditer(block.text)


def rank(query: str, specs: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Return the tools that share words with ``query``, best first: words of the name weigh most."""
    words = set(_words(query))
    scored: list[tuple[float, ToolSpec]] = []
    for spec in specs:
        name, text = _words(spec.name), set(_words(spec.description))
        score = sum(
            4.0 * (word in name) + 1.0 * (word in text) + 0.5 * any(part.startswith(word) for part in name)
            for word in words
        )
        if query.strip() in (spec.name, spec.name.rsplit("__", 1)[-1]):
            score += 100
        if score:
            scored.append((score, spec))
    return [spec for _score, spec in sorted(scored, key=lambda item: -item[0])]


def _words(text: str) -> list[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if len(word) > 1]
