"""MCP servers of a runtime: which there are, and how their tools, resources and questions reach an agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aar.protocol.errors import AarError, McpError, StorageError, UsageError
from aar.protocol.events import Notice
from aar.protocol.messages import ContentBlock
from aar.protocol.tool import ToolSpec
from aar.runtime.base import Base

if TYPE_CHECKING:
    from aar.config.schema import McpServerConfig
    from aar.core.active_model import ActiveModel
    from aar.core.budget import Budget
    from aar.core.session import Session
    from aar.extensions.mcp import MCPBridge
    from aar.extensions.mcp_ask import Sample
    from aar.extensions.mcp_config import ServerSpec
    from aar.safety.spawn import ProcessSpawner
    from aar.tools.registry import ToolRegistry

_PERSON_WAITS_S = 2.0
_ASKED_BY_SERVERS = "mcp"
"""Agent id under which the session counts what servers ask the model."""


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
        make_auth=partial(_signed, base),
    )
    bridge = MCPBridge(specs, world, registry, base.config.mcp.search_above)
    for spec in bridge.own_tools():
        registry.replace(spec)
    return bridge


def _signed(base: Base, name: str, config: McpServerConfig) -> object:
    """Return what signs requests to a server that the user signed in to; the SDK is loaded only for those."""
    from aar.extensions.mcp_logins import LoginStore

    store = LoginStore(base.paths.config)
    if config.url is None or not store.known(name, config.url):
        return None
    from aar.extensions.mcp_oauth import make_auth

    return make_auth(name, config, store)


async def sign_in_to(base: Base, spec: ServerSpec, show: Callable[[str], Awaitable[None]]) -> bool:
    """Sign in to a server; ``show`` lets the user open the page. ``False``: it lets everybody in.

    Raises:
        UsageError: It is no HTTP server.
        ConfigurationError: A variable of its settings is not set.
        McpError: It did not work.
    """
    if spec.kind != "http":
        raise UsageError(f"{spec.name} is started by a command; only servers with a url are signed in to.")
    config = spec.expanded(os.environ)
    from aar.extensions.mcp_logins import LoginStore

    oauth = await asyncio.to_thread(import_module, "aar.extensions.mcp_oauth")
    needed: bool = await oauth.sign_in(spec.name, config, LoginStore(base.paths.config), show)
    return needed


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
        self._active = active
        self._payer: tuple[Session, Callable[[], Budget | None]] | None = None
        self.bridge = make_bridge(base, spawner, registry, notices, files, sample=self._sample)
        self._base, self._spawner = base, spawner
        self._signing: set[asyncio.Task[None]] = set()
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
        return [spec for spec in registry.specs(enabled) if not self.has(spec.name)]

    def more_tools(self, allowed: Callable[[str], bool] = lambda name: True) -> tuple[ToolSpec, ...]:
        """Return the tools of servers that the model is shown now."""
        if self.bridge is None:
            return ()
        return tuple(spec for spec in self.bridge.offered() if allowed(spec.name))

    def has(self, name: str) -> bool:
        """Tell whether a tool comes from a server."""
        return self.bridge is not None and self.bridge.has(name)

    def start(self) -> None:
        """Start the servers in the background, once the screen stands."""
        if self.bridge is not None:
            self.bridge.start()

    def resources(self) -> list[str]:
        """Return the resources of the servers that are up, as ``server:uri``."""
        return self.bridge.resources() if self.bridge is not None else []

    async def login(self, name: str, session: Session) -> str | None:
        """Begin to sign in to a server; it is started anew when the user did, and ``session`` is told.

        Returns:
            The page to sign in on; ``None``: the server lets everybody in.

        Raises:
            AarError: It did not work.
        """
        assert self.bridge is not None
        link = self.bridge.links[name]
        page: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        async def show(address: str) -> None:
            from aar.runtime.browser import open_page

            page.set_result(address)
            await open_page(address, self._spawner, self._base.workspace)

        async def work() -> None:
            try:
                needed = await sign_in_to(self._base, link.spec, show)
                if not page.done():
                    page.set_result(None)
                if needed:
                    await link.restart()
                    _tell(session, "info", f"You are signed in to the MCP server {name}.")
            except AarError as error:
                if page.done():
                    _tell(session, "warning", str(error))
                else:
                    page.set_exception(error)

        task = asyncio.get_running_loop().create_task(work(), name=f"sign in to {name}")
        self._signing.add(task)
        task.add_done_callback(self._signing.discard)
        await asyncio.wait({task, page}, return_when=asyncio.FIRST_COMPLETED)
        return await page if page.done() else None

    async def logout(self, name: str) -> bool:
        """Forget the tokens of a server and end it; tell whether there were any.

        Raises:
            StorageError: The key store cannot be written.
        """
        from aar.extensions.mcp_logins import LoginStore

        gone = await asyncio.to_thread(LoginStore(self._base.paths.config).forget, name)
        if gone and self.bridge is not None:
            await self.bridge.links[name].aclose()
        return gone

    async def aclose(self) -> None:
        """End all servers."""
        for task in tuple(self._signing):
            task.cancel()
        if self._signing:
            await asyncio.wait(self._signing)
        if self.bridge is not None:
            await self.bridge.aclose()

    def paid_by(self, session: Session, budget: Callable[[], Budget | None]) -> None:
        """Let ``session`` pay for what servers ask the model from now on."""
        self._payer = session, budget

    async def _sample(self, system: str, messages: list[tuple[str, str]], max_tokens: int) -> tuple[str, str]:
        """Let the model answer for a server, with retries as for any request, at the session's cost.

        Raises:
            McpError: The budget of the session is used up.
            ProviderError: All attempts failed.
        """
        from aar.runtime.small import SmallJobs, count_cost

        session, budget = self._payer if self._payer is not None else (None, lambda: None)
        money = budget()
        if money is not None and money.exhausted:
            raise McpError("The budget of this session is used up.")
        jobs = SmallJobs(self._active(), self._base)
        said: list[tuple[Literal["user", "assistant"], str]] = [
            (_role(role), text) for role, text in messages if text
        ]
        text = await jobs.ask_all(said, system, max_tokens)
        if session is not None:
            count_cost(session, money, jobs, _ASKED_BY_SERVERS)
        return text, jobs.active.name

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


def _role(role: str) -> Literal["user", "assistant"]:
    return "assistant" if role == "assistant" else "user"


def _tell(session: Session, level: Literal["info", "warning"], message: str) -> None:
    with suppress(StorageError):
        session.append(Notice(level=level, code="mcp", message=message))
