"""What every provider does: take a `ProviderRequest`, give `Delta`s and a `ProviderResponse`.

A provider only translates. Retries, fallback, cost and events are ``core/provider_runner.py``'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import Message, ReasoningBlock, TextBlock, ToolUseBlock
from aar.protocol.tool import ToolSpec
from aar.protocol.usage import Price, Usage

Dialect = Literal["native", "text", "files"]
"""How a model acts: trained tool calls, tool calls in plain text, or whole-file answers."""

StopKind = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "other"]
"""Why a model stopped, in one form for all vendors."""


@dataclass(frozen=True, slots=True)
class ProviderCapabilities:
    """What a model can do, as far as it is known.

    Attributes:
        context_window: Tokens of prompt and answer together.
        max_output_tokens: Tokens of one answer; ``None``: not known.
        tools: Whether it was trained for tool calls.
        images: Whether it is known to take images.
        text_only: Whether it is known to take none; then a remark stands in for each.
        reasoning: Whether it can think first.
        dialect: See `Dialect`.
        price: ``None`` when not known; a local model's is 0.
        compact_prompt: Whether the short system prompt and small tool set should be used.
        grammar: Whether ``extra`` of a request may hold a ``grammar`` (GBNF) for the answer.
        small: Whether it has so few weights that it needs to be led step by step.
        output_schema: Whether the server can hold an answer to a JSON Schema: not, only in a request without
            tools, or beside them.
    """

    context_window: int = 128_000
    max_output_tokens: int | None = None
    tools: bool = True
    images: bool = False
    text_only: bool = False
    reasoning: bool = False
    dialect: Dialect = "native"
    price: Price | None = None
    compact_prompt: bool = False
    small: bool = False
    grammar: bool = False
    output_schema: Literal["none", "alone", "with_tools"] = "none"


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One request to a model.

    Attributes:
        model: Name without the provider's prefix.
        system: System prompt; the same bytes for every request of a session.
        messages: The conversation. Messages are immutable and keep their identity from step to step.
        tools: Empty: the model must answer in text.
        max_output_tokens: ``None``: the server's default.
        stop: Stop sequences.
        reasoning: ``off minimal low medium high max``, a number of tokens, or ``None``: the model's default.
        extra: Merged into the body as it is.
        cache_key: Stable for the session; servers with prompt-cache routing get it.
    """

    model: str
    system: str
    messages: tuple[Message, ...] | list[Message]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    reasoning: str | int | None = None
    output_schema: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cache_key: str | None = None


AnswerPart = TextBlock | ReasoningBlock | ToolUseBlock


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """A whole answer.

    Attributes:
        blocks: Text, reasoning and tool calls in the order in which the model gave them.
        usage: ``None`` when the server told none.
        stop: Why the model stopped.
        stop_raw: The same in the server's own words.
        refusal: Whether the model, or a filter, declined.
        model: The model that answered, as the server names it.
    """

    blocks: tuple[AnswerPart, ...]
    usage: Usage | None
    stop: StopKind
    stop_raw: str | None = None
    refusal: bool = False
    request_id: str | None = None
    model: str | None = None

    @property
    def text(self) -> str:
        """All text blocks, joined with nothing between."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def reasoning(self) -> str:
        """All thinking, joined with nothing between."""
        return "".join(block.text for block in self.blocks if isinstance(block, ReasoningBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls, in order."""
        return tuple(block for block in self.blocks if isinstance(block, ToolUseBlock))


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer. The last one, and only it, carries ``response``.

    Attributes:
        text: Next piece of text.
        reasoning: Next piece of thinking.
        tool_index: Which call of the answer (from 0) ``tool_name`` and ``tool_arguments`` belong to.
        tool_name: Given once for a call.
        tool_arguments: Next piece of the arguments' JSON.
        progress: What the provider is doing before the first token (``loading the model``), for people.
        response: The whole answer.
    """

    text: str = ""
    reasoning: str = ""
    tool_index: int | None = None
    tool_name: str | None = None
    tool_arguments: str = ""
    progress: str | None = None
    response: ProviderResponse | None = None


@asynccontextmanager
async def closing_stream(stream: AsyncIterator[Delta]) -> AsyncGenerator[AsyncIterator[Delta]]:
    """Close ``stream`` at the end: one that is left early must give its connection back now."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


class Provider(ABC):
    """A wire protocol spoken to one server.

    Both calls raise `ProviderError` and nothing else (besides cancellation); a stream that ends without
    its closing event raises ``incomplete_stream``. Cancelling the consuming task closes the connection.
    """

    name: str
    server: str = ""
    """Host, and port where it is not the usual one, that is asked; empty: nothing is sent to a server."""

    @abstractmethod
    def stream(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Ask, and yield the answer piece by piece."""

    async def complete(self, request: ProviderRequest) -> ProviderResponse:
        """Ask, and return the whole answer."""
        async with closing_stream(self.stream(request)) as deltas:
            async for delta in deltas:
                if delta.response is not None:
                    return delta.response
        raise ProviderError(
            ErrorKind.INCOMPLETE_STREAM,
            f"The answer of {request.model} ended without its end mark.",
        )

    @abstractmethod
    def capabilities(self, model: str) -> ProviderCapabilities:
        """Tell what ``model`` can do."""

    def warm(self) -> None:
        """Begin in the background what the first request would have to wait for; return at once."""

    async def list_models(self) -> list[str]:
        """Ask the server for its models; empty when it cannot tell."""
        return []

    async def aclose(self) -> None:
        """Release connections and processes."""
