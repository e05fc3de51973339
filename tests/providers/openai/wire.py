"""Answers of the Responses API, made from items: as a stream of events, and as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from aar.providers.base import Delta, ProviderResponse
from aar.providers.chat_completions.body import BodyDecoder
from aar.providers.chat_completions.decode import AnswerContext
from aar.providers.openai.decode import ResponsesDecoder

Item = dict[str, Any]
USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 4},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 7},
    "total_tokens": 42,
}


def message(*texts: str, refusal: str = "", **more: Any) -> Item:
    content: list[Item] = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    if refusal:
        content.append({"type": "refusal", "refusal": refusal})
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **more,
    }


def call(name: str, arguments: str, call_id: str = "call_1", **more: Any) -> Item:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
        **more,
    }


def reasoning(*summary: str, encrypted: str | None = "gAAA", **more: Any) -> Item:
    item: Item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        **more,
    }
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def search(query: str = "x") -> Item:
    action = {"type": "search", "query": query}
    return {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}


def response(items: Sequence[Item], status: str = "completed", **more: Any) -> Item:
    return {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-x",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": list(items),
        "usage": USAGE,
        **more,
    }


def events(items: Sequence[Item], end: Item | None = None, *, cut: int = 5) -> Iterator[Item]:
    """Yield the events of an answer; texts come in pieces of ``cut`` characters, ids change all the time."""
    whole = end or response(items)
    yield {
        "type": "response.created",
        "response": {**whole, "status": "in_progress", "output": [], "usage": None},
    }
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": f"other_{index}"}
        empty: Item = {"summary": [], "content": [], "arguments": ""}
        opened = {name: empty.get(name, value) for name, value in item.items()}
        yield {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**opened, "id": "opened"},
        }
        for number, part in enumerate(item.get("summary", ())):
            yield from _pieces(
                "response.reasoning_summary_text", part["text"], cut, summary_index=number, **place
            )
        for number, part in enumerate(item.get("content", ())):
            name = {"output_text": "output_text", "refusal": "refusal"}.get(part["type"], "reasoning_text")
            text = part.get("text", part.get("refusal"))
            yield from _pieces(f"response.{name}", text, cut, content_index=number, **place)
        if item["type"] == "function_call":
            yield from _pieces("response.function_call_arguments", item["arguments"], cut, **place)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _pieces(name: str, text: str, cut: int, **place: Any) -> Iterator[Item]:
    for start in range(0, len(text), cut):
        yield {"type": f"{name}.delta", "delta": text[start : start + cut], **place}
    told = {"response.refusal": "refusal", "response.function_call_arguments": "arguments"}.get(name, "text")
    yield {"type": f"{name}.done", told: text, **place}


def sse(told: Iterator[Item] | Sequence[Item], *, names: bool = True, line: str = "\n") -> bytes:
    text = ""
    for event in told:
        text += f"event: {event['type']}{line}" if names else ""
        text += f"data: {json.dumps(event, ensure_ascii=False)}{line}{line}"
    return text.encode()


def read(*pieces: bytes, **context: Any) -> tuple[list[Delta], ProviderResponse]:
    told = AnswerContext(**{"server": "host", "model": "m", **context})
    decoder = BodyDecoder(told, ResponsesDecoder(told))
    deltas = [delta for piece in pieces for delta in decoder.feed(piece)] + decoder.finish()
    answer = deltas[-1].response
    assert answer is not None
    return deltas, answer
