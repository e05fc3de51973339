"""The loop: ask the model, do what it asks, judge what it says, until there is a reason to stop.

Control flow only. Streaming, retries, tools, limits, nudges and checks live beside it, in `Run`.
"""

from __future__ import annotations

from typing import Protocol

from aar.core.provider_runner import Answer
from aar.protocol.state import StopReason


class Steps(Protocol):
    """The verbs of a run, in the order in which the loop uses them."""

    def limit_reached(self) -> StopReason | None:
        """Return why the run must come to its end now, if it must."""
        ...

    def take_steering(self) -> None:
        """Put what the user said meanwhile before the model."""
        ...

    async def ask(self) -> Answer:
        """Request the next answer and store it."""
        ...

    async def act(self, answer: Answer) -> StopReason | None:
        """Run the answer's tool calls and store their results."""
        ...

    async def weigh(self, answer: Answer) -> StopReason | None:
        """Judge an answer without tool calls: accept it, or nudge the model to go on."""
        ...

    async def conclude(self, reason: StopReason) -> StopReason:
        """Ask for one last answer without tools, where that is still possible."""
        ...


async def run_loop(run: Steps) -> StopReason:
    """Drive ``run`` to its end and return why it ended."""
    while True:
        limit = run.limit_reached()
        if limit is not None:
            return await run.conclude(limit)

        run.take_steering()
        answer = await run.ask()

        ended = await (run.act(answer) if answer.calls else run.weigh(answer))
        if ended is StopReason.REPETITION:
            return await run.conclude(ended)
        if ended is not None:
            return ended
