"""``/v1/chat/completions``, as OpenAI's clients speak it."""

from __future__ import annotations

import json
import time
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

_FINISHED = {
    StopReason.MAX_TOKENS: "length",
    StopReason.MAX_STEPS: "length",
    StopReason.TIMEOUT: "length",
    StopReason.BUDGET: "length",
    StopReason.REPETITION: "length",
    StopReason.REFUSAL: "content_filter",
}


class ChatMessage(Lenient):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None


class StreamOptions(Lenient):
    """What a stream tells besides the answer."""

    include_usage: bool | None = None


class ChatBody(Lenient):
    """A request for a completion. Sampling parameters, limits and tools of the client are not used."""

    model: str = Field(description="`aar`, or `aar/AGENT`.")
    messages: list[ChatMessage] = Field(min_length=1, description="The conversation; the last is the prompt.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    response_format: dict[str, Any] | None = None
    tool_choice: Any = None


def asked_of(body: ChatBody) -> Asked:
    """Return what a request wants.

    Raises:
        UsageError: It wants what an agent cannot do.
    """
    if body.n not in (None, 1):
        raise UsageError("n: there is one answer.")
    if body.response_format is not None and body.response_format.get("type") not in (None, "text"):
        raise UsageError("response_format: only text is answered.")
    if body.tool_choice not in (None, "auto", "none"):
        raise UsageError("tool_choice: aar uses tools of its own and never calls those of a client.")
    instructions: list[str] = []
    messages: list[Message] = []
    for place, message in enumerate(body.messages):
        content = _content(message.content, place)
        if message.role in ("system", "developer"):
            instructions.append("".join(block.text for block in content if isinstance(block, TextBlock)))
        elif message.role == "user":
            messages.append(Message(role="user", content=content))
        elif message.role == "assistant":
            text = tuple(block for block in content if isinstance(block, TextBlock))
            messages.append(Message(role="assistant", content=text))
        else:
            raise UsageError(f"messages.{place}: results of a client's tools are not taken.")
    return conversation(instructions, messages, body.model)


def _content(told: str | list[dict[str, Any]] | None, place: int) -> tuple[TextBlock | ImageBlock, ...]:
    if told is None:
        return ()
    if isinstance(told, str):
        return (TextBlock(text=told),) if told else ()
    return tuple(_part(part, place) for part in told)


def _part(part: dict[str, Any], place: int) -> TextBlock | ImageBlock:
    kind, text = part.get("type"), part.get("text")
    if kind == "text" and isinstance(text, str):
        return TextBlock(text=text)
    address = part.get("image_url")
    url = cast("dict[str, Any]", address).get("url") if isinstance(address, dict) else None
    if kind == "image_url" and isinstance(url, str) and url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        return image(head.removesuffix(";base64"), data)
    raise UsageError(f"messages.{place}: parts are text, or image_url with a data: URL.")


async def completions(request: Request) -> Response:
    """Let an agent answer a conversation, as a chat completion.

    The agent works in the project as `aar run` does: nobody is asked, the wall holds. A conversation
    that goes on goes on in its session. The header `x-aar-session` names the session.
    """
    body = await body_of(request, ChatBody)
    turn = await begin(request, asked_of(body))
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage is True
        return Stream(_stream(turn, usage=usage), turn.house.ending, turn.headers)
    result, text = await turn.whole(request)
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": _finish(result), "logprobs": None}
    head = _head(turn.asked.model, "chat.completion")
    return JSONResponse({**head, "choices": [choice], "usage": _usage(result)}, headers=turn.headers)


async def _stream(turn: Turn, *, usage: bool) -> AsyncGenerator[bytes]:
    head = _head(turn.asked.model, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return frame(json.dumps({**head, "choices": [choice]}))

    async with turn.answering() as pieces:
        yield chunk({"role": "assistant", "content": ""})
        try:
            async for piece in pieces:
                if isinstance(piece, Piece):
                    yield chunk(_delta(piece))
                    continue
                yield chunk({}, _finish(piece))
                if usage:
                    yield frame(json.dumps({**head, "choices": [], "usage": _usage(piece)}))
        except AarError as error:
            yield frame(json.dumps(error_body(http_status(error), str(error))))
    yield frame("[DONE]")


def _delta(piece: Piece) -> dict[str, Any]:
    delta = {"content": piece.text} if piece.text else {}
    return {**delta, "reasoning_content": piece.thinking} if piece.thinking else delta


def _head(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{new_id()}", "object": kind, "created": int(time.time()), "model": model}


def _finish(result: RunResult) -> str:
    return _FINISHED.get(result.stop_reason, "stop")


def _usage(result: RunResult) -> dict[str, Any]:
    usage = result.usage
    prompt = usage.input + usage.cache_read + usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


ENDPOINTS = (Endpoint("POST", "/v1/chat/completions", completions, ChatBody, streams=True),)
