"""One step of a stored session asked again, several times: how sure was the model of what it did?"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aar.core.session import Session
from aar.memory.memory_store import MemoryStore
from aar.protocol.errors import NotThereError, UsageError
from aar.protocol.events import AssistantMessage, ToolCall, UserMessage
from aar.protocol.messages import TextBlock
from aar.providers.base import ProviderRequest
from aar.runtime.context import budget_of
from aar.runtime.resilience import make_runner
from aar.runtime.sent import Sent

if TYPE_CHECKING:
    from aar.runtime.parts import Runtime

MOST_SAMPLES = 50


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer.

    Attributes:
        text: What the model said.
        calls: What it called: names and arguments.
        same_calls: Whether it called the same as then; both called nothing counts.
        same_text: Whether it said the same as then.
        output_tokens: Of the answer.
        cost_usd: ``None``: the price is not known.
    """

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    same_calls: bool
    same_text: bool
    output_tokens: int
    cost_usd: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        calls = [{"tool_name": name, "arguments": arguments} for name, arguments in self.calls]
        return {
            "text": self.text,
            "calls": calls,
            "same_calls": self.same_calls,
            "same_text": self.same_text,
            "output_tokens": self.output_tokens,
            "cost_usd": self.cost_usd,
        }


def recorded(sent: Sent) -> tuple[str, tuple[tuple[str, dict[str, Any]], ...]]:
    """Return what the model said and called then."""
    text = "".join(event.content for event in sent.answer if isinstance(event, AssistantMessage))
    calls = [event for event in sent.answer if isinstance(event, ToolCall)]
    return text, tuple((call.tool_name, dict(call.arguments)) for call in calls)


async def resample(runtime: Runtime, sent: Sent, count: int) -> AsyncGenerator[Sample]:
    """Ask the model of ``runtime`` what it was asked then, ``count`` times; no tool runs, nothing is stored.

    What it costs counts for the day.

    Raises:
        UsageError: The budget of the day is used up, or there is nothing to send.
        ProviderError: The model could not be asked.
    """
    if not sent.messages:
        raise NotThereError("Nothing had been said before this step, so there is nothing to send.")
    active = runtime.active
    scratch = Session.create(MemoryStore(), cwd=runtime.workspace, model=active.name)
    budget = budget_of(runtime.base, scratch)
    runner = make_runner(runtime.base, active, runtime.opened, None, None)
    request = _request(runtime, sent)
    then = recorded(sent)
    try:
        for number in range(count):
            if budget.exhausted:
                raise UsageError("The budget of the day is used up; --set budget.day_usd=USD raises it.")
            scope = scratch.scope(f"resample {number}")
            # Each answer in a turn of its own.
            scope.append(UserMessage(content=(TextBlock(text="resample"),)))
            answer = await runner.request(request, scope, make_parser=_parser_maker(runtime))
            budget.count(answer.cost_usd)
            calls = tuple((call.tool_name, dict(call.arguments)) for call in answer.calls)
            yield Sample(
                answer.text,
                calls,
                _plain(calls) == _plain(then[1]),
                answer.text.strip() == then[0].strip(),
                answer.usage.output,
                answer.cost_usd,
            )
    finally:
        scratch.close()


def _request(runtime: Runtime, sent: Sent) -> ProviderRequest:
    config, native = runtime.config.model, sent.dialect == "native"
    offered = {tool.name: tool for tool in (*sent.tools, *runtime.tools())}
    stop: tuple[str, ...] = tuple(config.stop or ())
    if sent.dialect == "text":
        from aar.providers.text_tools import STOP_SEQUENCES

        stop = (*stop, *STOP_SEQUENCES["text"])
    return ProviderRequest(
        model=runtime.active.model,
        system=sent.system,
        messages=sent.messages,
        tools=tuple(offered[name] for name in sent.tool_names if name in offered) if native else (),
        max_output_tokens=config.max_output_tokens,
        temperature=config.temperature,
        stop=stop,
        reasoning=runtime.reasoning,
    )


def _parser_maker(runtime: Runtime) -> Any:
    from aar.providers.text_tools import make_parser

    def known(name: str) -> str | None:
        spec = runtime.registry.get(name)
        return None if spec is None else spec.name

    return lambda: make_parser(runtime.active.capabilities.dialect, known)


def _plain(calls: tuple[tuple[str, dict[str, Any]], ...]) -> str:
    return json.dumps(calls, sort_keys=True)
