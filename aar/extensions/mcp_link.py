"""`ServerLink`: one MCP server, owned by one task that starts it, watches it and starts it again.

Everything about a connection happens inside the owner task, since the SDK's scopes must be left where they
were entered; calls (`aar.extensions.mcp_calls`) come from other tasks and go through the connection that is
open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aar.config.schema import McpServerConfig
from aar.extensions.mcp_ask import Questions
from aar.extensions.mcp_calls import ServerCalls
from aar.extensions.mcp_config import ServerSpec
from aar.extensions.mcp_logins import SignInNeededError
from aar.extensions.mcp_pins import PinStore
from aar.protocol.errors import AarError, McpError, ToolCategory, ToolFailure
from aar.protocol.ports import SpawnRequest
from aar.safety.sanitize import sanitize
from aar.safety.spawn import ProcessSpawner

if TYPE_CHECKING:
    from aar.extensions.mcp_session import Changed, Connection

JsonDict = dict[str, Any]
State = Literal["off", "starting", "ready", "waiting", "failed", "changed"]
"""``waiting``: it failed and will be started again; ``changed``: it needs the user's consent."""
_STDERR_BYTES = 8192
_MAX_RESTARTS = 5
_FIRST_DELAY_S = 0.5
_STEADY_S = 60.0
_UNAUTHORIZED = 401
_log = logging.getLogger("aar.mcp")


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How a server stands, for ``/mcp`` and ``aar mcp list``.

    Attributes:
        name: Of the server.
        state: See `State`.
        detail: Why it failed, or which wall holds; one sentence.
        where: Command line or address.
        scope: Whose it is.
        server: Name and version that it tells.
        tools: How many it has.
        resources: How many it has.
        prompts: How many it has.
        restarts: How often it was started again since it was last steady.
        stderr: End of what it wrote to standard error, made harmless.
        instructions: What it says about its use.
        changed_tools: Tools that changed after they were accepted.
    """

    name: str
    state: State
    detail: str
    where: str
    scope: str
    server: str
    tools: int
    resources: int
    prompts: int
    restarts: int
    stderr: str
    instructions: str
    changed_tools: tuple[str, ...]


@dataclass(slots=True)
class LinkWorld:
    """What a link needs of its surroundings.

    Attributes:
        spawner: Starts stdio servers.
        workspace: Root of the project; also the only root that servers are told.
        environ: For ``${VAR}``.
        pins: What was accepted.
        questions: How a server's own questions are answered.
        changed: Told when tools came, went or changed.
        make_auth: Makes what signs HTTP requests to a server that the user signed in to, ``None`` for others;
            called in a thread, since a keyring may take its time.
    """

    spawner: ProcessSpawner
    workspace: Path
    environ: Mapping[str, str]
    pins: PinStore
    questions: Questions
    changed: Callable[[ServerLink], None] = lambda link: None
    make_auth: Callable[[str, McpServerConfig], Any] = lambda name, config: None


@dataclass(eq=False)
class ServerLink:
    """One server: its state, its lists, and (`calls`) calls to it."""

    spec: ServerSpec
    world: LinkWorld
    state: State = "off"
    detail: str = ""
    tools: list[JsonDict] = field(default_factory=list[JsonDict])
    resources: list[JsonDict] = field(default_factory=list[JsonDict])
    prompts: list[JsonDict] = field(default_factory=list[JsonDict])
    changed_tools: set[str] = field(default_factory=set[str])
    trouble: str = ""
    restarts: int = 0
    _connection: Connection | None = None
    _task: asyncio.Task[None] | None = None
    _stderr: bytearray = field(default_factory=bytearray)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _broken: asyncio.Event = field(default_factory=asyncio.Event)
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    _tried: asyncio.Event = field(default_factory=asyncio.Event)
    _refreshing: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _ready_at: float = 0.0
    _auth: Any = None
    _refused: bool = False
    calls: ServerCalls = field(init=False)

    def __post_init__(self) -> None:
        self.calls = ServerCalls(self.spec, self.world.questions, self._usable, self._lost)

    # --- its life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the owner task begin, if none is under way."""
        if self._task is None or self._task.done():
            self._stop.clear()
            self._settled.clear()
            self._tried.clear()
            self._set("starting", "")
            self._task = asyncio.get_running_loop().create_task(self._own(), name=f"mcp {self.spec.name}")

    async def ready(self, timeout_s: float | None = None) -> bool:
        """Start it if need be, and wait until it can be used or has failed; tell whether it can be used."""
        if self.state in ("off", "failed"):
            self.start()
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError:
            return False
        return self.state == "ready"

    async def first_try(self, timeout_s: float) -> None:
        """Wait until it can be used, has failed, or waits to be started again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._tried.wait()

    async def aclose(self) -> None:
        """End the server and its owner task."""
        self._stop.set()
        self._broken.set()
        if self._task is not None:
            done, _ = await asyncio.wait({self._task}, timeout=4.0)
            if not done:
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=2.0)
        self._set("off", "")

    async def restart(self) -> bool:
        """End the server and start it anew; tell whether it can be used."""
        await self.aclose()
        self.restarts = 0
        self.start()
        return await self.ready()

    def status(self) -> ServerStatus:
        """Return how it stands."""
        info = self._connection.server if self._connection is not None else {}
        return ServerStatus(
            name=self.spec.name,
            state=self.state,
            detail=sanitize(self.detail),
            where=sanitize(self.spec.where),
            scope=self.spec.scope,
            server=sanitize(f"{info.get('name', '')} {info.get('version', '')}".strip()[:200]),
            tools=len(self.tools),
            resources=len(self.resources),
            prompts=len(self.prompts),
            restarts=self.restarts,
            stderr=self.stderr_tail(),
            instructions=sanitize((self._connection.instructions if self._connection else "")[:4000]),
            changed_tools=tuple(sorted(self.changed_tools)),
        )

    def stderr_tail(self) -> str:
        """Return the end of what the server wrote to standard error, harmless for a terminal."""
        return sanitize(bytes(self._stderr).decode("utf-8", "replace"))

    def _set(self, state: State, detail: str) -> None:
        self.state, self.detail = state, detail
        if state != "starting":
            self.trouble = detail
        if state in ("ready", "failed", "changed", "off"):
            self._settled.set()
        elif state == "starting":
            self._settled.clear()
        if state != "starting":
            self._tried.set()

    async def _own(self) -> None:
        """Connect; when the connection is lost, connect again, later each time."""
        while not self._stop.is_set():
            self._broken.clear()
            was_ready = await self._once()
            if self._stop.is_set() or self.state in ("changed", "failed"):
                return
            if was_ready and time.monotonic() - self._ready_at > _STEADY_S:
                self.restarts = 0
            if self.restarts >= (_MAX_RESTARTS if was_ready or self._ready_at else 1):
                self._fail(self.detail or "it ended")
                return
            delay = _FIRST_DELAY_S * 2**self.restarts
            self.restarts += 1
            self._set("waiting", f"{self.detail} It is started again in {delay:g} s.".strip())
            try:
                async with asyncio.timeout(delay):
                    await self._stop.wait()
            except TimeoutError:
                self._set("starting", "")

    def _fail(self, why: str) -> None:
        self._set("failed", why)
        self.tools, self.resources, self.prompts = [], [], []
        _log.warning("MCP server %s failed: %s %s", self.spec.name, why, self.stderr_tail()[-2000:])
        self.world.changed(self)

    async def _once(self) -> bool:
        """Hold one connection until it is lost; tell whether it was ready."""
        before = self._ready_at
        try:
            if self.world.pins.command_changed(self.spec):
                name = self.spec.name
                why = "Its command or address is not the one that you accepted."
                self._set("changed", f"{why} Look at it, then run `aar mcp approve {name}`.")
                return False
            config = self.spec.expanded(self.world.environ)
            self._refused = False
            if config.url is not None:
                self._auth = await asyncio.to_thread(self.world.make_auth, self.spec.name, config)
            await self._try_kinds(await asyncio.to_thread(_sdk), config)
        except FileNotFoundError as error:
            self._fail(f"{error.filename}: there is no such program or folder.")
        except AarError as error:
            if self._ready_at == before and type(error) is not McpError:
                self._fail(str(error))
            else:
                self.detail = self.detail or sanitize(str(error))[:500]
        except TimeoutError:
            self.detail = f"It was not ready within {self.spec.config.startup_timeout:g} s."
        except Exception as error:
            why = (await asyncio.to_thread(_sdk)).reason(error)
            self.detail = self.detail or sanitize(why)[:500]
        finally:
            self._connection = None
        if self._wants_sign_in and not self._stop.is_set():
            self._fail(str(SignInNeededError(self.spec.name)))
        return self._ready_at != before

    @property
    def _wants_sign_in(self) -> bool:
        """Whether nobody is let in before the user signed in: to try again does not help."""
        if self._auth is not None:
            return self._auth.problem is not None
        return self._refused and "authorization" not in (name.lower() for name in self.spec.config.headers)

    async def _try_kinds(self, session: Any, config: McpServerConfig) -> None:
        self.detail, before = "", self._ready_at
        kinds = self._kinds(config)
        first: Exception | None = None
        for kind in kinds:
            try:
                await self._hold(session, config, kind)
                return
            except Exception as error:
                denied = self._refused or _is_denial(session, error)
                if self._ready_at != before or kind == kinds[-1] or denied:
                    raise first or error from error
                first = error

    def _kinds(self, config: McpServerConfig) -> tuple[str, ...]:
        if self.spec.kind == "stdio":
            return ("stdio",)
        return ("http", "sse") if config.transport == "auto" else (config.transport,)

    async def _hold(self, session: Any, config: McpServerConfig, kind: str) -> None:
        callbacks = session.Callbacks(
            elicit=partial(self.world.questions.elicit, self.spec.name),
            sample=partial(self.world.questions.sample, self.spec.name),
            changed=self._list_changed,
            log=self._tell,
            roots=(self.world.workspace,),
        )
        transport = self._transport(session, config, kind)
        async with (
            asyncio.timeout(config.startup_timeout) as deadline,
            session.connected(transport, callbacks) as connection,
        ):
            await self._take_lists(connection)
            deadline.reschedule(None)
            self._connection = connection
            self._ready_at = time.monotonic()
            self._set("ready", "")
            self.world.changed(self)
            await self._broken.wait()

    def _tell(self, text: str) -> None:
        _log.info("%s: %s", self.spec.name, sanitize(text))

    def _transport(self, session: Any, config: McpServerConfig, kind: str) -> Callable[[], Any]:
        if kind == "stdio":
            from aar.extensions.mcp_stdio import spawned

            assert config.command is not None
            request = SpawnRequest(
                argv=(config.command, *config.args),
                cwd=(self.world.workspace / Path(config.cwd or ".").expanduser()),
                env=config.env,
                kind="tool" if config.sandbox else "helper",
                network=config.network,
            )
            return lambda: spawned(self.world.spawner, request, self._on_stderr, self._on_end)
        return lambda: session.over_http(
            config, "sse" if kind == "sse" else "http", self._auth, self._on_status
        )

    def _on_status(self, status: int) -> None:
        self._refused = self._refused or status == _UNAUTHORIZED

    def _on_stderr(self, data: bytes) -> None:
        self._stderr += data
        del self._stderr[:-_STDERR_BYTES]

    def _on_end(self, why: str) -> None:
        last = self.stderr_tail().strip().splitlines()
        words = "It wrote nothing to standard error."
        if last:
            words = f"Its last words: {last[-1][:300].rstrip(' .')}."
        self._break(f"{sanitize(why)} {words}")

    def _break(self, why: str) -> None:
        """Give the connection up: who wants to call waits for the next one."""
        self.detail = why
        self._connection = None
        if self.state == "ready":
            self.state = "waiting"
            self._settled.clear()
        self._broken.set()

    # --- its lists -------------------------------------------------------------------------------------

    async def _take_lists(self, connection: Connection) -> None:
        tools = await connection.tools() if connection.offers("tools") else []
        wanted = self.spec.config.tools
        self.tools = [tool for tool in tools if wanted is None or tool.get("name") in wanted]
        self.changed_tools = await asyncio.to_thread(self.world.pins.changed_tools, self.spec, self.tools)
        if connection.offers("resources"):
            self.resources = await connection.resources()
        if connection.offers("prompts"):
            self.prompts = await connection.prompts()

    def _list_changed(self, what: Changed) -> None:
        connection = self._connection
        if connection is None or len(self._refreshing) > 1:
            return  # one that runs and one that waits see every change

        async def refresh() -> None:
            try:
                async with asyncio.timeout(self.spec.config.startup_timeout):
                    await self._take_lists(connection)
            except Exception as error:
                _log.warning("the lists of MCP server %s could not be read: %s", self.spec.name, error)
                return
            self.calls.forget()
            self.world.changed(self)

        task = asyncio.get_running_loop().create_task(refresh())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    def accept(self, names: Iterable[str]) -> None:
        """Accept tools as they are now: the user agreed."""
        wanted = set(names)
        self.world.pins.accept(self.spec, [tool for tool in self.tools if tool.get("name") in wanted])
        self.changed_tools -= wanted
        self.world.changed(self)

    # --- its connection, for calls ----------------------------------------------------------------------

    async def _usable(self) -> Connection:
        if self._connection is None:
            await self.ready(self.spec.config.startup_timeout + 5)
        if self._connection is None:
            why = self.detail or "it is not running"
            raise ToolFailure(
                ToolCategory.EXCEPTION, f"The MCP server {self.spec.name} cannot be used: {why}"
            )
        return self._connection

    def _lost(self, why: str) -> None:
        """Take note that a call found the connection gone."""
        self._break(self.detail or why)


def _is_denial(session: Any, error: BaseException) -> bool:
    """Tell whether the server wants to know who is there: another transport would not help."""
    status = getattr(getattr(session.innermost(error), "response", None), "status_code", None)
    return status in (401, 403)


def _sdk() -> Any:
    from aar.extensions import mcp_session

    return mcp_session
