"""Answers as Gemini sends them, and the reading of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aar.protocol.errors import ProviderError
from aar.providers.base import Delta, ProviderResponse
from aar.providers.chat_completions.body import BodyDecoder
from aar.providers.gemini.decode import AnswerDecoder, GeminiContext
from aar.providers.gemini.errors import gemini_error
from tests.support.model_server import Reply

USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}


def piece(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one piece of a stream, or with ``finish`` a whole answer."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    candidate.update(more.pop("candidate", {}))
    return {"candidates": [candidate], "usageMetadata": USAGE, **more}


def sse(*pieces: Any) -> bytes:
    """Return a stream, framed as Google frames it."""
    return b"".join(b"data: %s\r\n\r\n" % json.dumps(item).encode() for item in pieces)


def call(name: str, signature: str | None = None, **told: Any) -> dict[str, Any]:
    """Return a part with a call."""
    part: dict[str, Any] = {"functionCall": {"name": name, **told}}
    return part if signature is None else {**part, "thoughtSignature": signature}


def answers(*bodies: bytes) -> list[Reply]:
    """Return replies that are streams."""
    return [Reply(body=body, content_type="text/event-stream") for body in bodies]


def refusal(status: int, body: Any, **headers: str) -> Reply:
    """Return a reply that is an error."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(status=status, body=raw, headers=headers)


def read(
    pieces: Sequence[bytes], *, status: int = 200, headers: dict[str, str] | None = None, **context: Any
) -> tuple[list[Delta], ProviderResponse]:
    """Read a response through the provider's decoder."""
    if status != 200:
        raise gemini_error(status, headers or {}, b"".join(pieces), server="host", model="m")
    known = GeminiContext(**{"server": "host", "model": "m", "headers": headers or {}, **context})
    decoder = BodyDecoder(known, AnswerDecoder(known))
    deltas = [delta for part in pieces for delta in decoder.feed(part)] + decoder.finish()
    response = deltas[-1].response
    assert response is not None
    return deltas, response


def outcome(pieces: Sequence[bytes], **context: Any) -> object:
    """Return all that an answer tells but the ids that were made up, or what is wrong with it."""
    try:
        _, response = read(pieces, **context)
    except ProviderError as error:
        return error.error_kind, str(error)
    made_up = {use.call_id: f"call {place}" for place, use in enumerate(response.tool_uses)}
    blocks = json.dumps([block.model_dump() for block in response.blocks])
    for call_id, name in made_up.items():
        blocks = blocks.replace(call_id, name)
    return blocks, response.usage, response.stop, response.stop_raw, response.refusal, response.request_id
