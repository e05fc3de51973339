"""A bridge over real servers, with a context for calls."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aar.config.schema import McpServerConfig, SandboxConfig
from aar.extensions.mcp import MCPBridge
from aar.extensions.mcp_ask import Questions
from aar.extensions.mcp_config import make_spec
from aar.extensions.mcp_link import LinkWorld
from aar.extensions.mcp_pins import PinStore
from aar.protocol.ports import ToolContext
from aar.protocol.tool import ToolOutcome
from aar.safety.spawn import ProcessSpawner
from aar.tools.registry import ToolRegistry

SDK_SERVER = Path(__file__).with_name("sdk_server.py")
ODD_SERVER = Path(__file__).with_name("odd_server.py")
NPM = Path(os.environ.get("MCP_REFERENCE_SERVERS") or "/nowhere")
"""A ``node_modules`` with @modelcontextprotocol/server-everything and server-filesystem."""


class World:
    """A workspace, a spawner, a bridge."""

    def __init__(self, root: Path, servers: dict[str, dict[str, Any]], **options: Any) -> None:
        self.root = root
        self.answers: list[str | None] = []
        self.asked: list[str] = []
        self.progress: list[str] = []
        self.spawner = ProcessSpawner(root, SandboxConfig(), own=[root / ".never"])
        self.registry = ToolRegistry()
        specs = {
            name: make_spec(name, McpServerConfig.model_validate(config), "user", "test")
            for name, config in servers.items()
        }
        data = options.pop("data", root.parent / "data")
        world = LinkWorld(
            spawner=self.spawner,
            workspace=root,
            environ=os.environ,
            pins=PinStore(data / "mcp_pins.json", root),
            questions=options.pop("questions", Questions()),
            make_auth=options.pop("make_auth", lambda name, config: None),
        )
        self.bridge = MCPBridge(specs, world, self.registry, **options)

    async def _ask(self, question: str, options: Sequence[str]) -> str | None:
        self.asked.append(question)
        return self.answers.pop(0) if self.answers else None

    def context(self) -> ToolContext:
        return ToolContext(
            call_id="call",
            workspace=self.root,
            files=None,  # type: ignore[arg-type]
            spawner=self.spawner,
            outputs=None,  # type: ignore[arg-type]
            progress=self.progress.append,
            ask=self._ask,
            plan=(),
            set_plan=lambda items: None,
        )

    async def call(self, name: str, **arguments: Any) -> ToolOutcome:
        spec = self.registry.get(name)
        assert spec is not None, sorted(self.bridge._all_names())
        assert spec.handler is not None
        return await spec.handler(arguments, self.context())


def sdk(**more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SDK_SERVER)], **more}


def odd(mode: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(ODD_SERVER), mode, *args], **more}


@asynccontextmanager
async def opened(root: Path, servers: dict[str, dict[str, Any]], **options: Any) -> AsyncIterator[World]:
    """Yield a world whose servers were started; nothing is left of it."""
    root.mkdir(exist_ok=True)
    world = World(root, servers, **options)
    try:
        yield world
    finally:
        await world.bridge.aclose()
        world.spawner.close()
