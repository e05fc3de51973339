"""``/v1/messages``, as Anthropic's clients speak it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, Literal, cast

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aar.core.agent import RunResult
from aar.protocol.errors import AarError, UsageError
from aar.protocol.ids import new_id
from aar.protocol.messages import ImageBlock, Message, TextBlock
from aar.protocol.state import StopReason
from aar.transports.serve.endpoints import Endpoint, body_of
from aar.transports.serve.guard import error_body
from aar.transports.serve.house import http_status
from aar.transports.serve.models.asked import Asked, Lenient, conversation, image
from aar.transports.serve.models.turn import Piece, Turn, begin
from aar.transports.serve.sse import Stream, frame

_STOPPED = {
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.MAX_STEPS: "max_tokens",
    StopReason.TIMEOUT: "max_tokens",
    StopReason.BUDGET: "max_tokens",
    StopReason.REPETITION: "max_tokens",
    StopReason.REFUSAL: "refusal",
}


class AnthropicMessage(Lenient):
    """A message of the conversation."""

    role: Literal["user", "assistant"]
    content: str | list[dict[str, Any]]


class MessagesBody(Lenient):
    """A request for a message. Sampling parameters, limits and tools of the client are not used."""

    model: str = Field(description="`aar`, or `aar/AGENT`.")
    messages: list[AnthropicMessage] = Field(min_length=1, description="The last one is the prompt.")
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    tool_choice: dict[str, Any] | None = None


def asked_of(body: MessagesBody) -> Asked:
    """Return what a request wants.

    Raises:
        UsageError: It wants what an agent cannot do.
    """
    if (body.tool_choice or {}).get("type") not in (None, "auto", "none"):
        raise UsageError("tool_choice: aar uses tools of its own and never calls those of a client.")
    system = [block.text for block in _content(body.system or "", 0) if isinstance(block, TextBlock)]
    messages = [
        Message(role=message.role, content=_content(message.content, place))
        for place, message in enumerate(body.messages)
    ]
    return conversation(["\n\n".join(system)], messages, body.model)


def _content(told: str | list[dict[str, Any]], place: int) -> tuple[TextBlock | ImageBlock, ...]:
    if isinstance(told, str):
        return (TextBlock(text=told),) if told else ()
    return tuple(_block(block, place) for block in told if block.get("type") != "thinking")


def _block(block: dict[str, Any], place: int) -> TextBlock | ImageBlock:
    kind, text, source = block.get("type"), block.get("text"), block.get("source")
    if kind == "text" and isinstance(text, str):
        return TextBlock(text=text)
    if kind == "image" and isinstance(source, dict):
        told = cast("dict[str, Any]", source)
        return image(told.get("media_type"), told.get("data"))
    raise UsageError(f"messages.{place}: content is text, or an image in base64.")


async def messages(request: Request) -> Response:
    """Let an agent answer a conversation, as a message.

    The agent works in the project as `aar run` does: nobody is asked, the wall holds. A conversation
    that goes on goes on in its session. The header `x-aar-session` names the session.
    """
    body = await body_of(request, MessagesBody)
    turn = await begin(request, asked_of(body))
    if body.stream:
        return Stream(_stream(turn), turn.house.ending, turn.headers)
    result, text = await turn.whole(request)
    content = [{"type": "text", "text": text}] if text else []
    head = _head(turn.asked.model)
    said = {**head, "content": content, "stop_reason": _stop(result), "usage": _usage(result)}
    return JSONResponse(said, headers=turn.headers)


async def _stream(turn: Turn) -> AsyncGenerator[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return frame(json.dumps({"type": kind, **fields}), name=kind)

    async with turn.answering() as pieces:
        nothing = {"input_tokens": 0, "output_tokens": 0}
        start: dict[str, Any] = {"content": [], "stop_reason": None, "usage": nothing}
        yield event("message_start", message={**_head(turn.asked.model), **start})
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        try:
            async for piece in pieces:
                if isinstance(piece, Piece):
                    delta = {"type": "text_delta", "text": piece.text}
                    more = event("content_block_delta", index=0, delta=delta)
                    yield more if piece.text else event("ping")
                    continue
                yield event("content_block_stop", index=0)
                delta = {"stop_reason": _stop(piece), "stop_sequence": None}
                yield event("message_delta", delta=delta, usage=_usage(piece))
                yield event("message_stop")
        except AarError as error:
            failed = error_body(http_status(error), str(error))
            yield frame(json.dumps(failed), name="error")


def _head(model: str) -> dict[str, Any]:
    return {
        "id": f"msg_{new_id()}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_sequence": None,
    }


def _stop(result: RunResult) -> str:
    return _STOPPED.get(result.stop_reason, "end_turn")


def _usage(result: RunResult) -> dict[str, int]:
    usage = result.usage
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
    }


ENDPOINTS = (Endpoint("POST", "/v1/messages", messages, MessagesBody, streams=True),)
