"""Server-sent events: frames, silence that is broken, and streams that end with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import TypeVar

from starlette.responses import StreamingResponse

T = TypeVar("T")
QUIET_S = 15.0
"""Seconds of silence after which a comment is sent: proxies close what seems dead."""
COMMENT = b": \n\n"


def frame(data: str, *, seq: int | None = None, name: str | None = None) -> bytes:
    """Return one event; ``data`` is one line."""
    head = (f"id: {seq}\n" if seq is not None else "") + (f"event: {name}\n" if name else "")
    return f"{head}data: {data}\n\n".encode()


async def until(source: AsyncGenerator[T], ending: asyncio.Event, quiet_s: float) -> AsyncGenerator[T | None]:
    """Yield what ``source`` yields, ``None`` after each silence, and end when ``ending`` is set."""
    end = asyncio.ensure_future(ending.wait())
    async with aclosing(source):
        following: asyncio.Future[T] | None = None
        try:
            while True:
                if following is None:
                    following = asyncio.ensure_future(anext(source))
                done, _ = await asyncio.wait(
                    {following, end}, timeout=quiet_s, return_when=asyncio.FIRST_COMPLETED
                )
                if following in done:
                    try:
                        item = following.result()
                    except StopAsyncIteration:
                        return
                    following = None
                    yield item
                elif end in done:
                    return
                else:
                    yield None
        finally:
            end.cancel()
            if following is not None:
                following.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await following


class Stream(StreamingResponse):
    """An answer of server-sent events.

    Args:
        frames: Frames, as `frame` makes them.
        ending: Ends the stream when it is set.
    """

    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncGenerator[bytes], ending: asyncio.Event, headers: dict[str, str] | None = None
    ) -> None:
        told = {"x-accel-buffering": "no", **(headers or {})}
        super().__init__(_with_comments(frames, ending), headers=told)


async def _with_comments(frames: AsyncGenerator[bytes], ending: asyncio.Event) -> AsyncIterator[bytes]:
    yield COMMENT
    async with aclosing(until(frames, ending, QUIET_S)) as told:
        async for one in told:
            yield COMMENT if one is None else one
