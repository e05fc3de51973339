"""MCP servers of a runtime: which there are, and how their tools, resources and questions reach an agent."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aar.protocol.messages import ContentBlock
from aar.protocol.tool import ToolSpec
from aar.runtime.base import Base

if TYPE_CHECKING:
    from aar.core.active_model import ActiveModel
    from aar.extensions.mcp import MCPBridge
    from aar.extensions.mcp_ask import Sample
    from aar.extensions.mcp_config import ServerSpec
    from aar.safety.spawn import ProcessSpawner
    from aar.tools.registry import ToolRegistry

_PERSON_WAITS_S = 2.0


def has_servers(base: Base, files: Sequence[Path] = ()) -> bool:
    """Tell whether any server may be configured, without reading more than file names."""
    from aar.extensions.mcp_config import PROJECT_FILES

    theirs = base.trusted and any((base.workspace / name).exists() for name in PROJECT_FILES)
    return bool(base.config.mcp.servers) or bool(files) or theirs


def find_servers(base: Base, files: Iterable[Path] = ()) -> tuple[dict[str, ServerSpec], list[str]]:
    """Return the servers that hold for this workspace, and sentences about files that cannot be used.

    Raises:
        ConfigurationError: A setting, or a file of ``--mcp-config``, is wrong.
    """
    from aar.extensions.mcp_config import gather

    prefix = "mcp.servers."
    theirs = {
        key.removeprefix(prefix).split(".")[0].strip('"')
        for key, origin in base.loaded.origins.items()
        if key.startswith(prefix) and origin.layer == "project"
    }
    return gather(base.config.mcp.servers, theirs, base.workspace, trusted=base.trusted, files=tuple(files))


def make_bridge(
    base: Base,
    spawner: ProcessSpawner,
    registry: ToolRegistry,
    notices: list[str],
    files: Sequence[Path] = (),
    *,
    sample: Sample | None = None,
) -> MCPBridge | None:
    """Return the bridge to all servers, nothing started; ``None`` where there are none.

    Raises:
        ConfigurationError: A setting, or a file of ``--mcp-config``, is wrong.
    """
    if not has_servers(base, files):
        return None
    specs, told = find_servers(base, files)
    notices += told
    if not specs:
        return None
    from aar.extensions.mcp import MCPBridge
    from aar.extensions.mcp_ask import Questions
    from aar.extensions.mcp_link import LinkWorld
    from aar.extensions.mcp_pins import PinStore

    world = LinkWorld(
        spawner=spawner,
        workspace=base.workspace,
        environ=os.environ,
        pins=PinStore(base.paths.data / "mcp_pins.json", base.workspace),
        questions=Questions(sample),
    )
    bridge = MCPBridge(specs, world, registry, base.config.mcp.search_above)
    for spec in bridge.own_tools():
        registry.replace(spec)
    return bridge


class ServerTools:
    """What a runtime does with its servers.

    Args:
        base: Settings.
        spawner: Starts stdio servers.
        registry: Gets their tools.
        notices: Gets sentences about files that cannot be used.
        files: ``--mcp-config``.
        interactive: Whether a person waits at the screen.
        active: Returns the model of the session, which may answer for servers.

    Raises:
        ConfigurationError: A setting, or a file of ``--mcp-config``, is wrong.
    """

    def __init__(
        self,
        base: Base,
        spawner: ProcessSpawner,
        registry: ToolRegistry,
        notices: list[str],
        files: Sequence[Path] = (),
        *,
        interactive: bool,
        active: Callable[[], ActiveModel],
    ) -> None:
        self.bridge = make_bridge(base, spawner, registry, notices, files, sample=sampler(active))
        self._wait_s = base.config.mcp.wait_s
        if interactive:
            self._wait_s = min(self._wait_s, _PERSON_WAITS_S)

    def own_specs(self, registry: ToolRegistry, enabled: Iterable[str] | None) -> list[ToolSpec]:
        """Return the tools that do not come from servers: all, or those named in ``enabled``.

        Raises:
            ConfigurationError: ``enabled`` names a tool that does not exist.
        """
        if enabled is not None:
            enabled = [name for name in enabled if not name.startswith("mcp_")]
        return [spec for spec in registry.specs(enabled) if not self._has(spec.name)]

    def callable_names(
        self, tools: Iterable[ToolSpec], allowed: Callable[[str], bool] = lambda name: True
    ) -> Container[str]:
        """Return the names of tools that may be called: of ``tools``, and what servers bring."""
        return _Names(frozenset(tool.name for tool in tools), lambda name: self._has(name) and allowed(name))

    def more_tools(self, allowed: Callable[[str], bool] = lambda name: True) -> tuple[ToolSpec, ...]:
        """Return the tools of servers that the model is shown now."""
        if self.bridge is None:
            return ()
        return tuple(spec for spec in self.bridge.offered() if allowed(spec.name))

    def _has(self, name: str) -> bool:
        return self.bridge is not None and self.bridge.has(name)

    def start(self) -> None:
        """Start the servers in the background, once the screen stands."""
        if self.bridge is not None:
            self.bridge.start()

    async def aclose(self) -> None:
        """End all servers."""
        if self.bridge is not None:
            await self.bridge.aclose()

    async def prepare(
        self, prompt: tuple[ContentBlock, ...]
    ) -> tuple[tuple[ContentBlock, ...], Sequence[str]]:
        """Wait for servers before a run, and attach ``@server:uri``.

        Raises:
            McpError: A required server cannot be used.
        """
        if self.bridge is None:
            return prompt, ()
        news = await self.bridge.settle(self._wait_s)
        content, problems = await self.bridge.expand_mentions(prompt)
        return content, [*news, *problems]


class _Names:
    """A set of names that grows with the servers."""

    def __init__(self, names: frozenset[str], more: Callable[[str], bool]) -> None:
        self._names = names
        self._more = more

    def __contains__(self, name: object) -> bool:
        return name in self._names or (isinstance(name, str) and self._more(name))


def sampler(active: Callable[[], ActiveModel]) -> Sample:
    """Return what asks the model of the session for a server."""

    async def sample(system: str, messages: list[tuple[str, str]], max_tokens: int) -> tuple[str, str]:
        from aar.protocol.messages import Message, TextBlock
        from aar.providers.base import ProviderRequest

        model = active()
        request = ProviderRequest(
            model=model.model,
            system=system,
            messages=[
                Message(role="assistant" if role == "assistant" else "user", content=(TextBlock(text=text),))
                for role, text in messages
                if text
            ],
            max_output_tokens=max_tokens,
        )
        answer = await model.provider.complete(request)
        text = "".join(block.text for block in answer.blocks if isinstance(block, TextBlock))
        return text, answer.model or model.name

    return sample
