"""Requests about files to the editor, made from the threads in which tools work."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from aar.safety.files import WorkspaceFiles
from aar.transports.acp.editor_files import EditorFiles
from aar.transports.acp.greeting import ClientCapabilities
from aar.transports.acp.messages import CANCELLED, INTERNAL_ERROR, RpcError, object_of
from aar.transports.acp.rpc import Connection

_TIMEOUT_S = 30.0
MakeFiles = Callable[..., WorkspaceFiles]


class EditorCalls:
    """The way of one session's files to the editor. Make it on the event loop.

    Attributes:
        session_id: Set when the session is open.
    """

    def __init__(self, connection: Connection) -> None:
        self.session_id = ""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._open: set[asyncio.Task[Any]] = set()

    def make_files(self, client: ClientCapabilities) -> MakeFiles | None:
        """Return what makes the file access; ``None``: the editor wants nothing to do with files."""
        if not client.read_files and not client.write_files:
            return None
        return partial(
            EditorFiles,
            read=self._read if client.read_files else None,
            write=self._write if client.write_files else None,
            loop_thread=self._thread,
        )

    def give_up(self) -> None:
        """Wait no longer for what the editor was asked."""
        for asked in tuple(self._open):
            asked.cancel()

    def _read(self, path: str) -> str:
        text = object_of(self._ask("fs/read_text_file", {"path": path})).get("content")
        if not isinstance(text, str):
            raise RpcError(INTERNAL_ERROR, "it gave no text")
        return text

    def _write(self, path: str, text: str) -> None:
        self._ask("fs/write_text_file", {"path": path, "content": text})

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        """Ask from a thread and block until there is an answer.

        Raises:
            RpcError: The editor answered with an error, or the turn was cancelled.
            TimeoutError: It did not answer in time.
        """
        told = {"sessionId": self.session_id, **params}
        try:
            return asyncio.run_coroutine_threadsafe(self._request(method, told), self._loop).result()
        except concurrent.futures.CancelledError:
            raise RpcError(CANCELLED, "the turn was cancelled") from None

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        """Ask on the event loop, where `give_up` finds it from the first moment."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await self._connection.request(method, params)
        finally:
            self._open.discard(task)
