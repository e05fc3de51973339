"""A server on a port: listens, tells where, ends by a signal, leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import uvicorn

from aar.protocol.errors import ConfigurationError
from aar.transports.serve.guard import LOOPBACK, App

_LAST_ANSWERS_S = 3
"""Seconds for answers under way when the server ends."""


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it, and tells when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ConfigurationError: The address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError, UnicodeError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"{host}:{port} cannot be listened on ({reason}); choose another with --port."
        ) from error
    return listening


def address(listening: socket.socket) -> str:
    """Return the address of a server as a browser takes it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach ``host``."""
    return host in LOOPBACK or host.startswith("127.")


@asynccontextmanager
async def serving(app: App, listening: socket.socket) -> AsyncGenerator[None]:
    """Serve ``app`` at ``listening`` until the block ends."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        loop="none",
        h11_max_incomplete_event_size=64_000,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
    )
    server = _Server(config)
    task = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        up = asyncio.ensure_future(server.up.wait())
        await asyncio.wait({up, task}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        yield
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task
        listening.close()


async def until_signal(
    app: App, listening: socket.socket, ready: Callable[[], None], end: Callable[[], Awaitable[Any]]
) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; return the exit code.

    Args:
        app: What is served.
        listening: Where.
        ready: Called when requests are answered.
        end: Ends what the app holds open, so that its streams end.
    """
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def take(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, take, number)
    try:
        async with serving(app, listening):
            ready()
            number = await ended
            await end()
    finally:
        if not ended.done():
            await end()
    return 128 + number
