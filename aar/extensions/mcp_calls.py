"""Calls to one MCP server: each within its time, and those that only read out of a cache for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aar.extensions.mcp_ask import Questions
from aar.extensions.mcp_config import ServerSpec
from aar.protocol.errors import McpError, ToolCategory, ToolFailure
from aar.protocol.ports import ToolContext
from aar.safety.sanitize import sanitize

if TYPE_CHECKING:
    from aar.extensions.mcp_session import Connection

JsonDict = dict[str, Any]
_MOST_EXTENSIONS = 10
_MOST_CACHED = 500


@dataclass(eq=False)
class ServerCalls:
    """Calls tools, reads resources and gets prompts.

    Attributes:
        spec: The server.
        questions: How its own questions are answered meanwhile.
        usable: Returns the open connection; starts the server where it is not ready.
        lost: Told that the connection is gone, and why.
    """

    spec: ServerSpec
    questions: Questions
    usable: Callable[[], Awaitable[Connection]]
    lost: Callable[[str], None]
    _cache: dict[str, tuple[float, JsonDict]] = field(default_factory=dict[str, tuple[float, JsonDict]])

    def forget(self) -> None:
        """Empty the cache: the server's lists changed."""
        self._cache.clear()

    async def tool(self, name: str, arguments: JsonDict, context: ToolContext, *, reads: bool) -> JsonDict:
        """Call a tool, starting the server first where it is not ready.

        Raises:
            ToolFailure: ``timeout``, or ``exception`` with what the server said.
        """
        key = f"{name}\0{sorted(arguments.items())!r}"
        ttl = self.spec.config.cache_ttl_s if reads else 0.0
        found = self._cache.get(key)
        if ttl and found is not None and time.monotonic() - found[0] < ttl:
            return found[1]
        result = await self._within_time(
            name,
            context,
            lambda connection, heard: connection.call(name, arguments, _reporter(context, heard)),
        )
        if ttl and not result.get("isError"):
            if len(self._cache) > _MOST_CACHED:
                self._cache.clear()
            self._cache[key] = time.monotonic(), result
        return result

    async def resource(self, uri: str, context: ToolContext | None) -> list[JsonDict]:
        """Return the contents of a resource.

        Raises:
            ToolFailure: As `tool`.
        """
        return await self._within_time(uri, context, lambda connection, _heard: connection.read(uri))

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> JsonDict:
        """Return a prompt of the server, with its messages.

        Raises:
            ToolFailure: As `tool`.
        """
        return await self._within_time(
            name, None, lambda connection, _heard: connection.prompt(name, arguments)
        )

    async def _within_time(
        self,
        what: str,
        context: ToolContext | None,
        work: Callable[[Connection, Callable[[], None]], Awaitable[Any]],
    ) -> Any:
        """Do ``work``. Progress and questions to the user give it more time."""
        connection = await self.usable()
        seconds = self.spec.config.timeout
        loop = asyncio.get_running_loop()
        latest = loop.time() + seconds * _MOST_EXTENSIONS
        timer = asyncio.timeout(seconds)

        def heard() -> None:
            if timer.when() is not None and not timer.expired():
                timer.reschedule(min(loop.time() + seconds, latest))

        try:
            with self.questions.asking(self.spec.name, context, timer, seconds):
                async with timer:
                    return await work(connection, heard)
        except TimeoutError:
            if not timer.expired():
                raise
            raise ToolFailure(
                ToolCategory.TIMEOUT, f"{self.spec.name} did not answer {what} within {seconds:g} s."
            ) from None
        except McpError as error:
            if type(error) is not McpError:  # the connection is gone
                self.lost(str(error))
            raise ToolFailure(ToolCategory.EXCEPTION, sanitize(str(error))[:4000]) from error


def _reporter(
    context: ToolContext, heard: Callable[[], None]
) -> Callable[[float, float | None, str | None], None]:
    def report(done: float, total: float | None, message: str | None) -> None:
        heard()
        share = f"{done:g}/{total:g}" if total else f"{done:g}"
        context.progress(sanitize(f"{share} {message or ''}".strip()[:500]) + "\n")

    return report
