"""A model that answers by what it is asked, so that several agents can talk to it at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aar.core.active_model import ActiveModel
from aar.core.agent import Agent, RunResult
from aar.core.session import Session
from aar.protocol.events import Event
from aar.protocol.messages import TextBlock, ToolResultBlock
from aar.protocol.usage import Price, Usage
from aar.providers.base import Delta, Provider, ProviderCapabilities, ProviderRequest, ProviderResponse
from aar.runtime import Runtime, open_runtime
from tests.support.fakes import Turn


class Ask:
    """One request, as a test reads it."""

    def __init__(self, request: ProviderRequest) -> None:
        self.request = request
        self.system = request.system
        self.tools = [tool.name for tool in request.tools]
        texts = [b.text for m in request.messages for b in m.content if isinstance(b, TextBlock)]
        self.prompt = texts[0] if texts else ""
        self.said = "\n".join(texts)
        self.results = [b for m in request.messages for b in m.content if isinstance(b, ToolResultBlock)]

    @property
    def first(self) -> bool:
        """Whether no tool has answered yet."""
        return not self.results


class Mind(Provider):
    """Answers with what ``think`` returns for each request."""

    name = "mind"

    def __init__(self, think: Callable[[Ask], Turn | str], *, delay_s: float = 0.0) -> None:
        self._think = think
        self._delay_s = delay_s
        self._number = 0
        self.asked: list[Ask] = []
        self.open = 0
        self.most = 0

    def capabilities(self, model: str) -> ProviderCapabilities:
        return ProviderCapabilities(price=Price(input=1000.0, output=1000.0))

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        ask = Ask(request)
        self.asked.append(ask)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            answer = self._think(ask)
            turn = Turn(answer) if isinstance(answer, str) else answer
            if turn.gate is not None:
                await turn.gate.wait()
            if turn.hang:
                await asyncio.Event().wait()
            self._number += 1
            number = self._number
            calls = [
                call.model_copy(update={"call_id": call.call_id or f"m{number}.{place}"})
                for place, call in enumerate(turn.calls)
            ]
            text = (TextBlock(text=turn.text),) if turn.text else ()
            if turn.text:
                yield Delta(text=turn.text)
            for at, block in enumerate(calls):
                yield Delta(tool_index=at, tool_name=block.name)
            usage = turn.usage or Usage(input=10, output=5)
            stop = "tool_use" if calls else "end_turn"
            yield Delta(response=ProviderResponse((*text, *calls), usage, stop, stop_raw=stop))
        finally:
            self.open -= 1

    async def complete(self, request: ProviderRequest) -> ProviderResponse:
        async for delta in self.stream(request):
            if delta.response is not None:
                return delta.response
        raise AssertionError("no answer")


class Place:
    """An open runtime in a project, with a `Mind` in place of a model."""

    def __init__(self, runtime: Runtime, session: Session, mind: Mind) -> None:
        self.runtime, self.session, self.mind = runtime, session, mind
        self.root = runtime.workspace
        self.agent: Agent = runtime.agent(session)

    async def run(self, prompt: str = "Do it.") -> RunResult:
        async with asyncio.timeout(60):
            return await self.agent.run(prompt, self.session)

    def of(self, *types: str, agent: str | None = None) -> list[Any]:
        events: list[Event] = list(self.session.events())
        return [e for e in events if e.type in types and (agent is None or e.agent_id == agent)]


@asynccontextmanager
async def place(
    tmp_path: Path,
    think: Callable[[Ask], Turn | str],
    *,
    files: dict[str, str] | None = None,
    mode: Any = "auto",
    delay_s: float = 0.0,
    **options: Any,
) -> AsyncIterator[Place]:
    """Open a runtime in ``tmp_path / "project"`` whose model is a `Mind`."""
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    for name, text in (files or {}).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    scenario = tmp_path / "model.json"
    scenario.write_text(json.dumps({"steps": [{"text": "unused"}]}))
    runtime = open_runtime(cwd=project, model=f"scripted/{scenario}", mode=mode, **options)
    mind = Mind(think, delay_s=delay_s)
    await runtime.active.provider.aclose()
    runtime.active = ActiveModel("mind/m", mind, "m", mind.capabilities("m"))
    session = runtime.open_session()
    try:
        yield Place(runtime, session, mind)
    finally:
        await session.aclose()
        await runtime.aclose()
