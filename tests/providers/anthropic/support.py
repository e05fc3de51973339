"""Streams of the Messages wire, and providers on loopback servers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from aar.config.schema import Config
from aar.protocol.messages import ImageBlock, Message, TextBlock
from aar.protocol.tool import ToolSpec
from aar.providers.anthropic.decode import MessageDecoder
from aar.providers.anthropic.provider import AnthropicProvider
from aar.providers.base import Delta, ProviderRequest, ProviderResponse
from aar.providers.chat_completions.body import BodyDecoder
from aar.providers.chat_completions.decode import AnswerContext
from aar.providers.factory import make_provider
from tests.support.model_server import ModelServer, Reply

KEY = "sk-ant-seeded-0123456789abcdef"
SEAL = "anthropic:127.0.0.1"
PNG = ImageBlock(media_type="image/png", data="aGk=")
READ = ToolSpec(
    "read", "Reads a file.", {"type": "object", "properties": {"p": {"type": "string"}}}, frozenset(), None
)


def user(*blocks: Any) -> Message:
    return Message(role="user", content=blocks)


def assistant(*blocks: Any) -> Message:
    return Message(role="assistant", content=blocks)


def say(text: str) -> TextBlock:
    return TextBlock(text=text)


def ask(*messages: Message, model: str = "claude-sonnet-4-5", **more: Any) -> ProviderRequest:
    return ProviderRequest(
        model=model, **{"system": "be brief", "messages": list(messages) or [user(say("hi"))], **more}
    )


def provider_at(base_url: str, key: str | None = KEY, **tables: Any) -> AnthropicProvider:
    environ = {"ANTHROPIC_API_KEY": key} if key else {}
    provider = make_provider(
        "anthropic/any",
        Config.model_validate(tables),
        data_dir=Path("."),
        runtime_dir=Path("."),
        base_url=base_url,
        environ=environ,
    )
    assert isinstance(provider, AnthropicProvider)
    return provider


async def answer(
    replies: Reply | Sequence[Reply], request: ProviderRequest | None = None, **more: Any
) -> tuple[ProviderResponse, list[Delta], ModelServer]:
    """Ask a server that replies so; return the answer, its pieces and the server."""
    async with ModelServer([replies] if isinstance(replies, Reply) else replies) as server:
        provider = provider_at(server.base_url, **more)
        try:
            deltas = [delta async for delta in provider.stream(request or ask())]
        finally:
            await provider.aclose()
    assert deltas[-1].response is not None
    return deltas[-1].response, deltas, server


def events(*data: dict[str, Any]) -> bytes:
    return b"".join(
        f"event: {item['type']}\ndata: {json.dumps(item, ensure_ascii=False)}\n\n".encode() for item in data
    )


def message(*content: dict[str, Any], stop: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 2}
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": list(content),
        "stop_reason": stop, "stop_sequence": None, "usage": usage, **more,
    }  # fmt: skip


def stream_of(whole: dict[str, Any], *, piece: int = 3, end: bool = True) -> bytes:
    """Return ``whole`` as the vendor would stream it, in pieces of ``piece`` characters."""
    head = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    data: list[dict[str, Any]] = [{"type": "message_start", "message": head}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        data += [{"index": index, **event} for event in _block_events(block, piece)]
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": whole["usage"]["output_tokens"]}
    data.append({"type": "message_delta", "delta": delta, "usage": usage})
    return events(*data, *([{"type": "message_stop"}] if end else []))


def _block_events(block: dict[str, Any], piece: int) -> Iterable[dict[str, Any]]:
    start, deltas = dict(block), []
    if block["type"] == "text":
        start["text"] = ""
        deltas = [{"type": "text_delta", "text": part} for part in _cut(block["text"], piece)]
    elif block["type"] == "thinking":
        start |= {"thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": part} for part in _cut(block["thinking"], piece)]
        deltas.append({"type": "signature_delta", "signature": block.get("signature", "")})
    elif "input" in block:
        start["input"] = {}
        text = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in ["", *_cut(text, piece)]]
    yield {"type": "content_block_start", "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "delta": delta}
    yield {"type": "content_block_stop"}


def _cut(text: str, piece: int) -> list[str]:
    return [text[place : place + piece] for place in range(0, len(text), piece)]


def decode(
    pieces: Sequence[bytes], headers: dict[str, str] | None = None, taken: tuple[str, ...] = ()
) -> tuple[list[Delta], ProviderResponse]:
    context = AnswerContext("host", "m", headers=headers or {}, taken_ids=taken)
    decoder = BodyDecoder(context, MessageDecoder(context, SEAL))
    deltas = [delta for piece in pieces for delta in decoder.feed(piece)] + decoder.finish()
    response = deltas[-1].response
    assert response is not None
    return deltas, response
