"""``aar acp``: answers ``initialize`` first, loads the rest after that, serves until the editor closes."""

from __future__ import annotations

import threading

from aar.transports.acp.greeting import initialize_result
from aar.transports.acp.messages import RpcError, kind_of, params_of, parse, result_message
from aar.transports.acp.wire import Wire, take_streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_LAST_WRITES_S = 1.0


def serve(options: Mapping[str, Any]) -> int:
    """Serve the editor at standard input and output; return the exit code.

    Args:
        options: For `aar.runtime.open_runtime`.
    """
    wire = take_streams()
    lines = wire.lines()
    greeted, left = _greet(wire, lines)
    loading = threading.Thread(target=_load, name="aar-acp-loading", daemon=True)
    if left is not None or greeted is not None:
        loading.start()
    from asyncio import run

    try:
        code = run(_serve(wire, lines, options, greeted, left))
    finally:
        wire.close(_LAST_WRITES_S)
    if loading.is_alive():
        # An import that is under way must not be torn by the end of the interpreter.
        loading.join()
    return code


def _greet(wire: Wire, lines: Iterator[bytes]) -> tuple[dict[str, Any] | None, bytes | None]:
    """Answer ``initialize``, if that comes first, as it should.

    Returns:
        Its parameters, or the line that came instead; neither when the editor closed without a word.
    """
    for line in lines:
        if not line.strip():
            continue
        try:
            message = parse(line)
            if kind_of(message) == "request" and message["method"] == "initialize":
                params = params_of(message)
                wire.write_now(result_message(message["id"], initialize_result(params)))
                return params, None
        except RpcError:
            pass
        return None, line
    return None, None


def _load() -> None:
    """Import what the first session needs."""
    from aar.transports.acp import opening

    opening.warm()


async def _serve(
    wire: Wire,
    lines: Iterator[bytes],
    options: Mapping[str, Any],
    greeted: dict[str, Any] | None,
    left: bytes | None,
) -> int:
    import asyncio
    import signal
    from contextlib import suppress

    from aar.transports.acp.server import Server

    server = Server(wire, options)
    if greeted is not None:
        server.greeted(greeted)
    ended: list[int] = []

    def end(number: int) -> None:
        ended.append(number)
        server.connection.closed.set()

    loop = asyncio.get_running_loop()
    with suppress(RuntimeError, ValueError):  # not in the main thread
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, end, number)
    if left is not None:
        server.connection.take(left)
    server.connection.listen(lines)
    await server.connection.closed.wait()
    await server.aclose()
    return 128 + ended[0] if ended else 0
