"""Answers of Anthropic's Messages wire, streamed or whole, to `Delta`s and one `ProviderResponse`.

A whole answer is read block by block like a stream, so both forms give the same response. Event and block
types that aar does not know are passed over; those of tools that the server ran itself are kept, so that
they can go back with the conversation, and are never run.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from aar.protocol.ids import new_id
from aar.protocol.messages import ReasoningBlock, TextBlock, ToolUseBlock
from aar.protocol.text import clean_json, clean_text
from aar.protocol.usage import Usage
from aar.providers.base import AnswerPart, Delta, ProviderResponse, StopKind
from aar.providers.chat_completions.decode import AnswerContext
from aar.providers.chat_completions.tools import parse_arguments
from aar.providers.http.errors import request_id

_STOPS: dict[str, StopKind] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
}
_SENT_BACK = frozenset({"server_tool_use", "mcp_tool_use", "compaction", "container_upload"})
_TEXT_DELTAS = {"text_delta": "text", "thinking_delta": "thinking"}


@dataclass(slots=True)
class _Block:
    """One content block as far as it has come.

    Attributes:
        start: As the server began it.
        pieces: Of its text, thinking, or JSON.
        signature: Of thinking.
        position: Of a call among the calls.
        whole: Whether it came in one piece, as in an answer that is no stream.
    """

    kind: str
    start: dict[str, Any]
    pieces: list[str] = field(default_factory=list[str])
    signature: str = ""
    position: int = 0
    whole: bool = False

    @property
    def text(self) -> str:
        """All pieces."""
        return "".join(self.pieces)


class MessageDecoder:
    """Puts one answer together from its events.

    Attributes:
        done: Whether the end mark was seen.
        seen_choice: Whether anything of an answer was seen.
    """

    def __init__(self, context: AnswerContext, seal: str) -> None:
        """Args: ``seal`` is the name under which blocks are kept for the server to get them back."""
        self._context = context
        self._seal = seal
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self._refusal: str | None = None
        self._id: str | None = None
        self._model: str | None = None
        self._calls = 0
        self.seen_choice = False
        self.done = False

    def feed(self, chunk: Any) -> list[Delta]:
        """Take one event, or one whole message, and return what it adds.

        Raises:
            ProviderError: It tells an error, or is no event at all.
        """
        if not isinstance(chunk, dict):
            raise self._context.malformed(json.dumps(chunk)[:200])
        event = cast("dict[str, Any]", chunk)
        kind = event.get("type")
        if kind == "error" or ("error" in event and kind is None):
            raise self._context.told_error(event)
        if kind == "message":
            return self._whole(event)
        if kind == "message_start":
            return self._begin(_object(event.get("message")))
        if kind == "content_block_start":
            return self._start(_index(event), _object(event.get("content_block")))
        if kind == "content_block_delta":
            return self._delta(_index(event), _object(event.get("delta")))
        if kind == "message_delta":
            return self._end(_object(event.get("delta")), event.get("usage"))
        if kind == "message_stop":
            self.seen_choice = self.done = True
        elif not isinstance(kind, str):
            raise self._context.malformed(json.dumps(event)[:200])
        return []

    def _begin(self, message: dict[str, Any]) -> list[Delta]:
        self.seen_choice = True
        self._id = self._id or _string(message.get("id"))
        self._model = self._model or _string(message.get("model"))
        deltas = self._end(message, message.get("usage"))
        content = message.get("content")
        for place, block in enumerate(cast("list[Any]", content) if isinstance(content, list) else []):
            deltas += self._start(place, _object(block), whole=True)
        return deltas

    def _whole(self, message: dict[str, Any]) -> list[Delta]:
        if not isinstance(message.get("content"), list):
            raise self._context.malformed("a message without content")
        return self._begin(message)

    def _end(self, delta: dict[str, Any], usage: Any) -> list[Delta]:
        """Take what tells how the answer ends; later counts replace earlier ones."""
        self._stop = _string(delta.get("stop_reason")) or self._stop
        details = _object(delta.get("stop_details"))
        self._refusal = _string(details.get("explanation")) or self._refusal
        self._usage.update({name: item for name, item in _object(usage).items() if item is not None})
        return []

    def _start(self, index: int, start: dict[str, Any], *, whole: bool = False) -> list[Delta]:
        kind = _string(start.get("type")) or ""
        block = self._blocks[index] = _Block(kind, start, whole=whole)
        if kind == "tool_use":
            block.position = self._calls
            self._calls += 1
            name = _string(start.get("name"))
            told = json.dumps(start.get("input"), ensure_ascii=False) if start.get("input") else ""
            return [Delta(tool_index=block.position, tool_name=name, tool_arguments=told)]
        if kind in {"text", "thinking"}:
            block.signature = _string(start.get("signature")) or ""
            return self._add(block, _string(start.get(kind)) or "")
        return []

    def _delta(self, index: int, delta: dict[str, Any]) -> list[Delta]:
        kind = delta.get("type")
        if kind in _TEXT_DELTAS:
            name = _TEXT_DELTAS[kind]
            block = self._blocks.setdefault(index, _Block(name, {"type": name}))
            return self._add(block, _string(delta.get(name)) or "")
        block = self._blocks.get(index)
        if block is None:
            return []
        if kind == "signature_delta":
            block.signature += _string(delta.get("signature")) or ""
        elif kind == "input_json_delta":
            return self._json(block, _string(delta.get("partial_json")) or "")
        elif kind == "compaction_delta":
            told = _string(block.start.get("content")) or ""
            content = told + (_string(delta.get("content")) or "")
            block.start = {**block.start, "content": content or None}
        return []

    def _add(self, block: _Block, text: str) -> list[Delta]:
        if not text:
            return []
        block.pieces.append(text)
        if block.kind == "text":
            return [Delta(text=text)]
        return [Delta(reasoning=text)] if block.kind == "thinking" else []

    def _json(self, block: _Block, piece: str) -> list[Delta]:
        if not piece:
            return []
        block.pieces.append(piece)
        if block.kind != "tool_use":
            return []
        return [Delta(tool_index=block.position, tool_arguments=piece)]

    def finish(self, *, whole: bool) -> list[Delta]:
        """Return the last deltas, of which the very last carries the response.

        Args:
            whole: Whether the answer came as one JSON document, which has no end mark of its own.

        Raises:
            ProviderError: The answer is not complete.
        """
        if not self.seen_choice:
            raise (
                self._context.malformed("an answer without content") if whole else self._context.incomplete()
            )
        if not whole and not self.done:
            raise self._context.incomplete()
        deltas = [Delta(response=self._response())]
        if self._refusal:
            said = clean_text(" ".join(self._refusal.split()))
            deltas.insert(0, Delta(progress=f"{self._context.server} refused: {said}"))
        return deltas

    def _response(self) -> ProviderResponse:
        blocks = self._answer()
        stop = self._stop_kind(calls=any(isinstance(block, ToolUseBlock) for block in blocks))
        return ProviderResponse(
            blocks=tuple(blocks),
            usage=normalise(self._usage),
            stop=stop,
            stop_raw=self._stop,
            refusal=stop == "refusal",
            request_id=request_id(self._context.headers) or self._id,
            model=self._model,
        )

    def _stop_kind(self, *, calls: bool) -> StopKind:
        known = _STOPS.get(self._stop or "end_turn", "other")
        if calls and known in {"end_turn", "other"}:
            return "tool_use"
        return "other" if known == "tool_use" and not calls else known

    def _answer(self) -> list[AnswerPart]:
        ordered = [self._blocks[index] for index in sorted(self._blocks)]
        used: set[str] = set()
        parts: list[AnswerPart] = []
        for block in ordered:
            if block.kind == "tool_use":
                parts.append(self._call(block, used, last=block is ordered[-1]))
            else:
                parts += self._part(block)
        return parts

    def _part(self, block: _Block) -> list[AnswerPart]:
        if block.kind == "text":
            return [TextBlock(text=clean_text(block.text))] if block.pieces else []
        if block.kind == "thinking":
            if not block.pieces and not block.signature:
                return []
            return [ReasoningBlock(text=clean_text(block.text), signature=block.signature or None)]
        if block.kind == "redacted_thinking":
            data = _string(block.start.get("data"))
            return [ReasoningBlock(data=data, redacted=True)] if data else []
        if block.kind in _SENT_BACK or block.kind.endswith("_tool_result"):
            return [ReasoningBlock(data=self._sealed(block))]
        return []

    def _sealed(self, block: _Block) -> str:
        content = block.start
        if block.pieces:
            content = {**content, "input": parse_arguments(block.text) or {}}
        sealed = {"server": self._seal, "block": clean_json(content)}
        return json.dumps(sealed, ensure_ascii=False, separators=(",", ":"))

    def _call(self, block: _Block, used: set[str], *, last: bool) -> ToolUseBlock:
        name = _string(block.start.get("name"))
        if name is None:
            raise self._context.malformed("a tool call without a name")
        raw = block.text
        if not block.pieces and block.start.get("input") is not None:
            given = block.start["input"]
            raw = json.dumps(given, ensure_ascii=False) if given or block.whole else ""
        arguments = parse_arguments(raw)
        cut = last and _STOPS.get(self._stop or "") == "max_tokens"
        if cut and (block.whole or not raw.strip()):
            # What was cut cannot be told from what was meant: servers close the braces of cut arguments.
            arguments = None
        told = _string(block.start.get("id"))
        free = told is not None and told not in used and told not in self._context.taken_ids
        call_id = told if told is not None and free else f"call_{new_id()}"
        used.add(call_id)
        return ToolUseBlock(
            call_id=call_id,
            name=name,
            arguments=arguments or {},
            raw_arguments=raw if arguments is None else None,
        )


def normalise(raw: Mapping[str, Any]) -> Usage | None:
    """Return usage in aar's form; ``None`` when it tells no token counts. Input excludes the cache here."""
    details, kept = _object(raw.get("output_tokens_details")), _object(raw.get("cache_creation"))
    if _count(raw, "input_tokens") is None and _count(raw, "output_tokens") is None:
        return None
    return Usage(
        input=_count(raw, "input_tokens") or 0,
        output=_count(raw, "output_tokens") or 0,
        cache_read=_count(raw, "cache_read_input_tokens") or 0,
        cache_write=_count(raw, "cache_creation_input_tokens") or 0,
        cache_write_1h=_count(kept, "ephemeral_1h_input_tokens") or 0,
        reasoning=_count(details, "thinking_tokens") or 0,
    )


def _count(raw: Mapping[str, Any], name: str) -> int | None:
    value = raw.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
        return int(value)
    return None


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else 0


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
