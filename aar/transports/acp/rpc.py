"""The JSON-RPC layer: requests and notifications in, answers and our own requests out, on one event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from aar.transports.acp.messages import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcError,
    error_message,
    is_id,
    is_object,
    kind_of,
    params_of,
    parse,
    result_message,
)

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
"""Called at once when the line is read, in the order of the lines; what it returns is awaited in a task."""
Notified = Callable[[dict[str, Any]], None]


class Sender(Protocol):
    """Where messages to the client go."""

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message; those of one caller go out in their order."""
        ...


class Connection:
    """Both directions over a wire. Requests run side by side; answers go out as they are ready.

    Args:
        wire: Takes what is sent.
        requests: Handlers by method.
        notifications: Handlers by method; unknown notifications are ignored.
        explain: Turns an exception that is no `RpcError` into one.
        cancel: Told method and params of a request that is taken back; returns whether it saw to it.
    """

    def __init__(
        self,
        wire: Sender,
        requests: dict[str, Handler],
        notifications: dict[str, Notified],
        explain: Callable[[str, BaseException], RpcError],
        cancel: Callable[[str, dict[str, Any]], bool] = lambda method, params: False,
    ) -> None:
        self._wire = wire
        self._requests = requests
        self._notifications = notifications
        self._explain = explain
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._running: dict[Any, tuple[asyncio.Task[Any], str, dict[str, Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.closed = asyncio.Event()
        """Set when the other side has closed."""

    # --- lines in ----------------------------------------------------------------------------------------

    def listen(self, lines: Iterable[bytes]) -> None:
        """Read in a thread of its own until the other side closes."""

        def read() -> None:
            try:
                for line in lines:
                    self._loop.call_soon_threadsafe(self.take, line)
                self._loop.call_soon_threadsafe(self.closed.set)
            except RuntimeError:
                return  # the loop has ended before the reader

        threading.Thread(target=read, name="aar-acp-reader", daemon=True).start()

    def take(self, line: bytes) -> None:
        """Handle one line."""
        if not line.strip():
            return
        message: dict[str, Any] = {}
        try:
            message = parse(line)
            kind = kind_of(message)
            if kind == "response":
                self._take_response(message)
            elif kind == "notification":
                self._take_notification(message)
            else:
                self._take_request(message)
        except RpcError as error:
            if "id" in message or "method" not in message:
                told = message.get("id")
                self._wire.send(error_message(told if is_id(told) else None, error))

    def _take_response(self, message: dict[str, Any]) -> None:
        told = message.get("id")
        future = self._pending.pop(told, None) if isinstance(told, int) else None
        if future is None or future.done():
            return  # late, or an answer to nothing
        error = message.get("error")
        if is_object(error):
            code, text = error.get("code"), error.get("message")
            future.set_exception(RpcError(code if isinstance(code, int) else INTERNAL_ERROR, str(text)))
        else:
            future.set_result(message.get("result"))

    def _take_notification(self, message: dict[str, Any]) -> None:
        method = message["method"]
        try:
            params = params_of(message)
            if method == "$/cancel_request":
                self._cancel_request(params.get("requestId"))
            elif (handler := self._notifications.get(method)) is not None:
                handler(params)
        except Exception as error:
            # There is nobody to tell: a notification has no answer.
            self._explain(method, error)

    def _take_request(self, message: dict[str, Any]) -> None:
        request_id, method = message["id"], message["method"]
        handler = self._requests.get(method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method[:200]}", {"method": method[:200]})
        params = params_of(message)
        # Handlers note synchronously what a later line may refer to, such as a turn that is cancelled.
        try:
            work = handler(params)
        except RpcError:
            raise
        except Exception as error:
            raise self._explain(method, error) from None
        task = self._loop.create_task(_finish(work))
        self._tasks.add(task)
        if request_id is not None:
            self._running[request_id] = (task, method, params)
        task.add_done_callback(lambda done: self._answer(request_id, method, done))

    def _answer(self, request_id: Any, method: str, task: asyncio.Task[Any]) -> None:
        """Answer from outside of the task: one cancelled before its first step never runs its body."""
        self._tasks.discard(task)
        if request_id in self._running and self._running[request_id][0] is task:
            del self._running[request_id]
        if task.cancelled():
            error = RpcError(CANCELLED, "The request was cancelled.")
            self._wire.send(error_message(request_id, error))
            return
        failed = task.exception()
        if failed is None:
            self._wire.send(result_message(request_id, task.result()))
            return
        error = failed if isinstance(failed, RpcError) else self._explain(method, failed)
        self._wire.send(error_message(request_id, error))

    def _cancel_request(self, request_id: Any) -> None:
        running = self._running.get(request_id) if is_id(request_id) else None
        if running is not None and not self._cancel(running[1], running[2]):
            running[0].cancel()

    # --- lines out ---------------------------------------------------------------------------------------

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self._wire.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Ask the client; cancelling takes the question back.

        Raises:
            RpcError: It answered with an error, or has gone.
        """
        if self.closed.is_set():
            raise RpcError(INVALID_REQUEST, "The client has gone.")
        request_id, self._next_id = self._next_id, self._next_id + 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pending[request_id] = future
        self._wire.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        try:
            return await future
        except asyncio.CancelledError:
            if self._pending.pop(request_id, None) is not None:
                self.notify("$/cancel_request", {"requestId": request_id})
            raise

    async def end(self, seconds: float) -> None:
        """Give up what is open: our questions fail, and requests get ``seconds`` to answer."""
        for future in self._pending.values():
            if not future.done():
                future.set_exception(RpcError(INVALID_REQUEST, "The client has gone."))
        self._pending.clear()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()


async def _finish(work: Awaitable[Any]) -> Any:
    return await work
