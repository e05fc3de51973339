"""The methods of the protocol: what an editor may ask of aar."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aar.transports.acp.greeting import AUTH_CONFIGURED, ClientCapabilities, initialize_result
from aar.transports.acp.messages import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    NOT_FOUND,
    RpcError,
    invalid_params,
    is_array,
    is_object,
)
from aar.transports.acp.rpc import Connection, Handler, Sender

if TYPE_CHECKING:
    from aar.runtime.parts import Runtime
    from aar.transports.acp.bounds import Bounds
    from aar.transports.acp.session import EditorSession

_PAGE = 100
"""Sessions in one answer of ``session/list``."""
_CLOSING_S = 3.0
_GREET_AFTER_S = 0.01
"""The answer with the session's id goes out first: clients drop updates of sessions they do not know."""
_Work = Coroutine[Any, Any, Any]


class Server:
    """Serves one editor: many sessions at once, in different folders.

    Args:
        wire: Takes what is sent to it.
        options: For `open_runtime`; the working folder comes with each session.
        here: Whether the editor is on this machine.
        bounds: Where clients may work that can only make things stricter than whoever started this; see
            `make_runtime`. ``None``: an editor of the user, who may have any folder.
    """

    def __init__(
        self, wire: Sender, options: Mapping[str, Any], *, here: bool = True, bounds: Bounds | None = None
    ) -> None:
        self._options = dict(options)
        self._bounds = bounds
        self._trusted: set[Path] = set()
        self._here = here
        self._client = ClientCapabilities()
        self._initialized = False
        self._sessions: dict[str, EditorSession] = {}
        self._opening: set[asyncio.Task[Any]] = set()
        served: dict[str, Callable[[dict[str, Any]], _Work]] = {
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }
        requests: dict[str, Handler] = {name: self._when_greeted(work) for name, work in served.items()}
        requests["initialize"] = self._initialize
        requests["session/prompt"] = self._prompt
        self.connection = Connection(
            wire, requests, {"session/cancel": self._cancel}, _explained, self._cancel_request
        )

    def greeted(self, params: dict[str, Any]) -> None:
        """Take note of an ``initialize`` that was answered already."""
        self._client, self._initialized = ClientCapabilities(params, here=self._here), True

    def has_session(self, session_id: str) -> bool:
        """Tell whether a session is open."""
        return session_id in self._sessions

    async def aclose(self) -> None:
        """End all turns and processes."""
        for session in self._sessions.values():
            session.cancel()
        for task in tuple(self._opening):
            task.cancel()
        await self.connection.end(_CLOSING_S)
        await asyncio.gather(*(session.aclose() for session in self._sessions.values()))
        self._sessions.clear()

    # --- beginning ---------------------------------------------------------------------------------------

    async def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        result = initialize_result(params)
        self.greeted(params)
        return result

    def _when_greeted(self, work: Callable[[dict[str, Any]], _Work]) -> Handler:
        def handle(params: dict[str, Any]) -> _Work:
            self._demand_greeting()
            return work(params)

        return handle

    def _demand_greeting(self) -> None:
        if not self._initialized:
            raise RpcError(INVALID_REQUEST, "Invalid request: send initialize first.")

    async def _authenticate(self, params: dict[str, Any]) -> dict[str, Any]:
        method = _string(params, "methodId")
        if method != AUTH_CONFIGURED:
            raise invalid_params(f"there is no method {method[:40]!r} to authenticate with")

        def look() -> None:
            from aar.runtime.base import base_arguments, open_base
            from aar.runtime.models import make_active_model

            base = open_base(**base_arguments({**self._options, "trust": False}))
            active, _ = make_active_model(base, self._options.get("base_url"))
            _ = active.name

        try:
            await asyncio.to_thread(look)
        except Exception as error:
            raise _auth_required(error) from None
        return {}

    # --- opening sessions --------------------------------------------------------------------------------

    async def _new(self, params: dict[str, Any]) -> dict[str, Any]:
        session = await self._open(params)
        return {"sessionId": session.session_id, **session.state()}

    async def _load(self, params: dict[str, Any]) -> dict[str, Any]:
        session = await self._known(params)
        await session.replay()
        return session.state()

    async def _resume(self, params: dict[str, Any]) -> dict[str, Any]:
        return (await self._known(params)).state()

    async def _fork(self, params: dict[str, Any]) -> dict[str, Any]:
        session_id = _string(params, "sessionId")
        self._folder(params)
        await self._demand_stored(session_id)
        session = await self._open(params, fork_id=session_id)
        return {"sessionId": session.session_id, **session.state()}

    async def _known(self, params: dict[str, Any]) -> EditorSession:
        """Return a session that is open or stored."""
        session_id = _string(params, "sessionId")
        self._folder(params)
        if session_id in self._sessions:
            session = self._sessions[session_id]
            self._greet_soon(session)
            return session
        await self._demand_stored(session_id)
        return await self._open(params, session_id=session_id)

    async def _demand_stored(self, session_id: str) -> None:
        if session_id in self._sessions:
            return
        from aar.transports.acp.opening import is_stored

        if not await asyncio.to_thread(is_stored, session_id, self._bounds):
            raise _no_session(session_id)

    async def _open(self, params: dict[str, Any], **which: str) -> EditorSession:
        """Put a runtime together for the folder, open a session in it and connect it.

        Args:
            params: Of the request.
            **which: As for `Runtime.open_session`.
        """
        folder, more = self._folder(params), self._more_folders(params)
        servers = _servers(params)
        if self._bounds is not None and any("command" in server for server in servers.values()):
            raise invalid_params("mcpServers: over HTTP servers have a url; no command is taken")
        task = asyncio.ensure_future(self._opened(folder, more, servers, which))
        self._opening.add(task)
        try:
            session = await task
        finally:
            self._opening.discard(task)
        self._greet_soon(session)
        return session

    async def _opened(
        self,
        folder: Path,
        more: list[Path],
        servers: dict[str, Any],
        which: Mapping[str, Any],
    ) -> EditorSession:
        from aar.transports.acp.opening import make_runtime
        from aar.transports.acp.session import attach

        options = {**self._options_in(folder), "goes_on": which}
        bounded = self._bounds is not None
        work = asyncio.to_thread(make_runtime, options, folder, more, servers, bounded=bounded)
        made = asyncio.ensure_future(work)
        try:
            runtime = await asyncio.shield(made)
        except asyncio.CancelledError:
            made.add_done_callback(_close_unused)
            raise
        try:
            session = await attach(self.connection, self._client, runtime, which, self._options)
            await session.look_around()
        except BaseException:
            await runtime.aclose()
            raise
        self._sessions[session.session_id] = session
        return session

    def _options_in(self, folder: Path) -> dict[str, Any]:
        """Return the options for a folder; ``--trust`` is for what is there when it is opened first."""
        from aar.config.paths import project_root

        root = project_root(folder.resolve())
        trust = bool(self._options.get("trust")) and root not in self._trusted
        self._trusted.add(root)
        return {**self._options, "trust": trust}

    def _folder(self, params: dict[str, Any]) -> Path:
        folder = self._in_bounds(_absolute(params.get("cwd"), "cwd"), "cwd")
        if not folder.is_dir():
            raise invalid_params(f"cwd {folder} is no folder")
        return folder

    def _more_folders(self, params: dict[str, Any]) -> list[Path]:
        key = "additionalDirectories"
        given = params.get(key)
        if given is None:
            return []
        if not is_array(given):
            raise invalid_params(f"{key} must be a list")
        folders = [self._in_bounds(_absolute(item, key), key) for item in given]
        for folder in folders:
            if not folder.is_dir():
                raise invalid_params(f"{key}: {folder} is no folder")
        return folders

    def _in_bounds(self, folder: Path, key: str) -> Path:
        return folder if self._bounds is None else self._bounds.demand(folder, key)

    def _greet_soon(self, session: EditorSession) -> None:
        asyncio.get_running_loop().call_later(_GREET_AFTER_S, session.greet)

    # --- the list of sessions ----------------------------------------------------------------------------

    async def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        from aar.transports.acp.opening import stored_sessions

        cwd = params.get("cwd")
        folder = None if cwd is None else self._in_bounds(_absolute(cwd, "cwd"), "cwd")
        start = _position(params.get("cursor"))
        open_ids = frozenset(self._sessions)
        listed = await asyncio.to_thread(stored_sessions, folder, open_ids, self._bounds)
        result: dict[str, Any] = {"sessions": listed[start : start + _PAGE]}
        if len(listed) > start + _PAGE:
            result["nextCursor"] = base64.urlsafe_b64encode(f"at:{start + _PAGE}".encode()).decode()
        return result

    async def _close(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        del self._sessions[session.session_id]
        await session.aclose()
        return {}

    async def _delete(self, params: dict[str, Any]) -> dict[str, Any]:
        session_id = _string(params, "sessionId")
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.aclose()
        from aar.transports.acp.opening import delete_session

        await asyncio.to_thread(delete_session, session_id, self._bounds)
        return {}

    # --- in a session ------------------------------------------------------------------------------------

    def _session(self, params: dict[str, Any]) -> EditorSession:
        session_id = _string(params, "sessionId")
        session = self._sessions.get(session_id)
        if session is None:
            raise _no_session(session_id)
        return session

    def _prompt(self, params: dict[str, Any]) -> _Work:
        # No coroutine: the turn must be there before the next line is read, which may cancel it.
        self._demand_greeting()
        session = self._session(params)
        return session.prompt(session.begin_turn(), params.get("prompt"))

    def _cancel(self, params: dict[str, Any]) -> None:
        session = self._sessions.get(str(params.get("sessionId")))
        if session is not None:
            session.cancel()

    def _cancel_request(self, method: str, params: dict[str, Any]) -> bool:
        """See to it that a prompt whose request is cancelled is answered as a cancelled turn."""
        if method == "session/prompt":
            self._cancel(params)
        # A session that is being opened is cancelled at its own steps.
        return method == "session/prompt"

    async def _set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        self._session(params).set_mode(params.get("modeId"))
        return {}

    async def _set_option(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        return {"configOptions": session.set_option(params.get("configId"), params.get("value"))}


# --- parameters ------------------------------------------------------------------------------------------


def _string(params: dict[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise invalid_params(f"{key} must be a string")
    return value


def _absolute(value: object, key: str) -> Path:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise invalid_params(f"{key} must be an absolute path")
    return Path(value)


def _servers(params: dict[str, Any]) -> dict[str, Any]:
    """Return the editor's MCP servers, by name, in the shape of ``mcpServers`` files."""
    given = params.get("mcpServers")
    if given is None:
        return {}
    if not is_array(given):
        raise invalid_params("mcpServers must be a list")
    servers: dict[str, Any] = {}
    for item in given:
        if not is_object(item):
            raise invalid_params("an MCP server must be an object")
        servers[_string(item, "name")] = _server(item)
    return servers


def _server(told: dict[str, Any]) -> dict[str, Any]:
    kind = told.get("type", "stdio")
    if kind in ("http", "sse"):
        return {"type": kind, "url": _string(told, "url"), "headers": _pairs(told.get("headers"))}
    if kind != "stdio":
        raise invalid_params(f"MCP servers of type {str(kind)[:20]!r} are not spoken to")
    args: object = told.get("args") or []
    if not is_array(args) or not all(isinstance(arg, str) for arg in args):
        raise invalid_params("args of an MCP server must be strings")
    return {"command": _string(told, "command"), "args": args, "env": _pairs(told.get("env"))}


def _pairs(given: object) -> dict[str, str]:
    """Return a list of ``{name, value}`` as a table."""
    try:
        return {str(item["name"]): str(item["value"]) for item in given} if is_array(given) else {}
    except (TypeError, KeyError):
        raise invalid_params("env and headers of an MCP server are lists of name and value") from None


def _position(cursor: object) -> int:
    """Return the place in the list that a cursor stands for."""
    if cursor is None:
        return 0
    try:
        if isinstance(cursor, str):
            word, _, number = base64.urlsafe_b64decode(cursor).decode("ascii").partition(":")
            if word == "at" and number.isdigit():
                return int(number)
    except (binascii.Error, ValueError):
        pass
    raise invalid_params("cursor is none that session/list gave")


# --- failures --------------------------------------------------------------------------------------------


def _no_session(session_id: str) -> RpcError:
    return RpcError(NOT_FOUND, f"There is no session {session_id[:80]}.", {"sessionId": session_id[:80]})


def _auth_required(error: BaseException) -> RpcError:
    from aar.protocol.errors import AarError

    if not isinstance(error, AarError):
        return _explained("authenticate", error)
    return RpcError(AUTH_REQUIRED, f"Authentication required: {error}")


def _explained(method: str, error: BaseException) -> RpcError:
    """Return the error of the protocol for one of aar's; a defect goes into the diagnostics log."""
    if isinstance(error, RpcError):
        return error
    from aar.protocol.errors import AarError, ConfigurationError
    from aar.runtime.base import log_failure

    if isinstance(error, ConfigurationError) and error.kind == "configuration" and "key" in str(error):
        return _auth_required(error)
    if isinstance(error, AarError):
        return RpcError(INTERNAL_ERROR, str(error), {"kind": str(error.kind)})
    log_failure(f"the request {method} failed", error)
    message = (
        f"{method} failed inside ({type(error).__name__}: {str(error)[:200]}). `aar logs` has the details."
    )
    return RpcError(INTERNAL_ERROR, message)


def _close_unused(made: asyncio.Future[Runtime]) -> None:
    """Give up a runtime that was ready only after nobody wanted it any more."""
    if not made.cancelled() and made.exception() is None:
        made.result().spawner.close()
