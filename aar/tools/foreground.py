"""Commands that the agent waits for, which the user may send to the background while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from aar.protocol.ports import Process, Spawner, SpawnRequest, SpawnResult


class Foreground:
    """The commands that somebody waits for; implements `aar.protocol.ports.Foreground`."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def waiting(self, call_id: str) -> Generator[asyncio.Event]:
        """Surround the wait for the command of a call; the event is set when the wait is to end."""
        event = self._waiting[call_id] = asyncio.Event()
        try:
            yield event
        finally:
            self._waiting.pop(call_id, None)

    def send_back(self) -> int:
        """Let all commands go on in the background; return how many there were."""
        waiting = list(self._waiting.values())
        for event in waiting:
            event.set()
        return len(waiting)


async def run_unless_sent_back(
    spawner: Spawner,
    request: SpawnRequest,
    on_output: Callable[[bytes], None],
    sent_back: asyncio.Event,
) -> SpawnResult | Process:
    """Run a command to its end, or until it is sent to the background: then it goes on without a time limit.

    Cancelling kills the tree.

    Returns:
        How it ended, or the process that goes on.

    Raises:
        SandboxError: The wall could not be raised, or failed after the start.
        OSError: It could not be started.
    """
    process = await spawner.start(request, on_output)
    end = asyncio.ensure_future(process.wait())
    leave = asyncio.ensure_future(sent_back.wait())
    try:
        await asyncio.wait({end, leave}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        end.cancel()
        await asyncio.wait({end})
        raise
    finally:
        leave.cancel()
    if end.done():
        return end.result()
    process.lift_time_limit()
    # Nobody waits any more: a failure of the wall later on shows where the output is asked for.
    end.add_done_callback(lambda done: done.cancelled() or done.exception())
    return process
