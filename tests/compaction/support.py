"""A world whose model has a small window, and models that write notes well, badly or not at all."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aar.config.schema import ContextConfig
from aar.core.compaction.writer import SYSTEM
from aar.protocol.events import Compaction
from aar.protocol.messages import Message, TextBlock, ToolResultBlock
from aar.protocol.usage import Usage
from aar.providers.base import Delta, Provider, ProviderCapabilities, ProviderRequest, ProviderResponse
from aar.tools.output_store import OutputStore
from tests.support.fakes import Turn, World, check_messages

Notes = Callable[[str], str | BaseException]
"""Answers a question about notes: with text, or by failing."""

GOOD_NOTES = """\
## Goal
- Make the parser faster.
## Decisions, with their reasons
- Keep the old API, because plugins use it.
## Next step
- Run the benchmarks."""


def good_notes(prompt: str) -> str:
    return "NOTHING MISSING" if "What is missing" in prompt else GOOD_NOTES


class Script(Provider):
    """Answers the loop by turns (the last one again and again) and questions about notes by a function."""

    name = "told"

    def __init__(self, turns: Sequence[Turn | str], notes: Notes = good_notes) -> None:
        self.turns = [Turn(turn) if isinstance(turn, str) else turn for turn in turns]
        self.notes = notes
        self.requests: list[ProviderRequest] = []
        self.asked: list[str] = []

    def capabilities(self, model: str) -> ProviderCapabilities:
        return ProviderCapabilities()

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        if request.system == SYSTEM:
            prompt = request.messages[0].text
            self.asked.append(prompt)
            answer = self.notes(prompt)
            if isinstance(answer, BaseException):
                raise answer
            yield Delta(
                response=ProviderResponse((TextBlock(text=answer),), Usage(input=100, output=20), "end_turn")
            )
            return
        turn = self.turns[min(len(self.requests), len(self.turns) - 1)]
        self.requests.append(request)
        if turn.fail is not None:
            raise turn.fail
        number = len(self.requests)
        calls = [
            block if block.call_id else block.model_copy(update={"call_id": f"c{number}.{place}"})
            for place, block in enumerate(turn.calls)
        ]
        blocks = [*([TextBlock(text=turn.text)] if turn.text else []), *calls]
        stop: Any = "tool_use" if calls else "end_turn"
        if turn.text:
            yield Delta(text=turn.text)
        yield Delta(response=ProviderResponse(tuple(blocks), None, stop))


class SmallWorld(World):
    """A world with a window of ``window`` tokens, whose outputs are kept."""

    def __init__(
        self,
        root: Path,
        turns: Sequence[Turn | str],
        *,
        window: int = 20_000,
        notes: Notes = good_notes,
        **more: Any,
    ) -> None:
        script = Script(turns, notes)
        capabilities = {"context_window": window, **more.pop("capabilities", {})}
        super().__init__(root, script, capabilities=capabilities, **more)
        self.script = script
        outputs = OutputStore(root.parent / "outputs")
        self.agent._keep_output = outputs.keep  # pyright: ignore[reportPrivateUsage] - as the runtime passes it
        self.agent.config = replace(self.agent.config, context=ContextConfig())

    @property
    def compactions(self) -> list[Compaction]:
        return self.of("compaction")

    def check_requests(self) -> None:
        """Every request was a valid conversation."""
        for request in self.script.requests:
            check_messages(request.messages)

    def texts(self) -> str:
        """All that the model would be sent now."""
        return everything(self.session.messages())


def everything(messages: Sequence[Message]) -> str:
    return "\n".join(
        getattr(block, "output", "") or getattr(block, "text", "") or str(getattr(block, "arguments", ""))
        for message in messages
        for block in message.content
    )


def outputs(messages: Sequence[Message]) -> list[str]:
    return [
        block.output
        for message in messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


def fair_notes(prompt: str) -> str:
    """Write down as a fair model would: sentences of the conversation with a number, a path or a rule in them."""
    if "What is missing" in prompt:
        return "NOTHING MISSING"
    conversation = prompt.partition("<conversation>")[2].partition("</conversation>")[0]
    said = re.findall(r"^(?:USER|ASSISTANT): (.*)$", conversation, re.MULTILINE)
    facts = [line for line in said if re.search(r"\d|/|must|never|always|because", line)]
    return (
        "## Goal\n- Go on.\n## Facts worth keeping\n"
        + "\n".join(f"- {fact}" for fact in facts)
        + "\n## Next step\n- Go on."
    )


def forgetful_notes(prompt: str) -> str:
    """Write down next to nothing."""
    return "NOTHING MISSING" if "What is missing" in prompt else "## Goal\n- Work.\n## Next step\n- Go on."
