"""Chat-completions answers, streamed or whole, to `Delta`s and one `ProviderResponse`.

A whole answer is read as a stream of one chunk, so both forms give the same response.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import ReasoningBlock, TextBlock, ToolUseBlock
from aar.protocol.text import clean_text
from aar.providers.base import AnswerPart, Delta, ProviderResponse, StopKind
from aar.providers.chat_completions.reasoning import Envelope, ReasoningDetails, plain_reasoning
from aar.providers.chat_completions.tools import Call, ToolCalls
from aar.providers.chat_completions.usage import normalise
from aar.providers.http.errors import request_id, scrub, sentence, server_error
from aar.providers.think_tags import ThinkSplitter

_STOPS: dict[str, StopKind] = {
    "stop": "end_turn",
    "end_turn": "end_turn",
    "eos": "end_turn",
    "eos_token": "end_turn",
    "end": "end_turn",
    "complete": "end_turn",
    "completed": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "tool_use": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "model_length": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "sensitive": "refusal",
}
_FAILED_STOPS = {
    "error": ErrorKind.PROVIDER_INTERNAL,
    "network_error": ErrorKind.PROVIDER_INTERNAL,
    "insufficient_system_resource": ErrorKind.OVERLOADED,
    "malformed_function_call": ErrorKind.PROVIDER_INTERNAL,
}
_TEXT_PARTS = frozenset({"text", "output_text"})


@dataclass(slots=True)
class _Segment:
    """Adjacent text, or adjacent thinking, or one call."""

    kind: Literal["text", "reasoning", "call"]
    pieces: list[str] = field(default_factory=list[str])
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """What the decoder needs to know about the request.

    Attributes:
        server: Host, for sentences and to mark opaque reasoning as this server's.
        model: Name of the model, for sentences.
        headers: Of the response, names in lower case.
        taken_ids: Ids of the conversation's earlier tool calls.
        secrets: Texts that must not appear in an error.
        seal: Whether thinking is marked as this server's, so that it can go back to it.
    """

    server: str = "the server"
    model: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    taken_ids: Collection[str] = ()
    secrets: tuple[str, ...] = ()
    seal: bool = True

    def told_error(self, body: Any, default: ErrorKind | None = None) -> ProviderError:
        """Return the error that a body of status 200 tells."""
        return server_error(
            200,
            self.headers,
            body,
            server=self.server,
            model=self.model,
            secrets=self.secrets,
            default=default,
        )

    def malformed(self, said: str) -> ProviderError:
        """Return the error for something that is no answer."""
        said = scrub(clean_text(said), self.secrets)
        text = sentence(ErrorKind.MALFORMED_RESPONSE, self.server, self.model, said)
        return ProviderError(
            ErrorKind.MALFORMED_RESPONSE, text, status=200, request_id=request_id(self.headers)
        )

    def incomplete(self) -> ProviderError:
        """Return the error for an answer that just ends."""
        text = f"The answer of {self.server} ended before it was complete. Try again."
        return ProviderError(
            ErrorKind.INCOMPLETE_STREAM, text, status=200, request_id=request_id(self.headers)
        )


class AnswerDecoder:
    """Puts one answer together from its chunks."""

    def __init__(self, context: AnswerContext) -> None:
        self._context = context
        self._segments: list[_Segment] = []
        self._splitter = ThinkSplitter()
        self._tools = ToolCalls()
        self._details = ReasoningDetails()
        self._envelope = Envelope(context.server)
        self._usage: dict[str, Any] = {}
        self._choice: Any = None
        self.seen_choice = False
        self._refused = False
        self._stop: str | None = None
        self._id: str | None = None
        self._model: str | None = None
        self.done = False

    def feed(self, chunk: Any) -> list[Delta]:
        """Take one chunk, or one whole completion, and return what it adds.

        Raises:
            ProviderError: It tells an error, or is no chunk at all.
        """
        if not isinstance(chunk, dict):
            raise self.malformed(json.dumps(chunk)[:200])
        fields = cast("dict[str, Any]", chunk)
        self._check_error(fields)
        self._take_usage(fields)
        self._id = self._id or _string(fields.get("id"))
        self._model = self._model or _string(fields.get("model"))
        deltas: list[Delta] = []
        for choice in self._choices(fields):
            deltas += self._take_choice(choice)
        return deltas

    def _check_error(self, fields: dict[str, Any]) -> None:
        error = fields.get("error")
        groq = fields.get("x_groq")
        if not error and isinstance(groq, dict):
            error = cast("dict[str, Any]", groq).get("error")
        if error:
            raise self.told_error(fields if fields.get("error") else {"error": error})
        if fields.get("object") == "error" or fields.get("type") == "error":
            raise self.told_error(fields)
        if "choices" not in fields and "usage" not in fields and "x_groq" not in fields:
            if any(fields.get(name) for name in ("detail", "message", "msg", "errors")):
                raise self.told_error(fields, ErrorKind.MALFORMED_RESPONSE)
            raise self.malformed(json.dumps(fields)[:200])

    def _take_usage(self, fields: dict[str, Any]) -> None:
        groq = fields.get("x_groq")
        if isinstance(groq, dict):
            self._merge_usage(cast("dict[str, Any]", groq).get("usage"))
        self._merge_usage(fields.get("usage"))

    def _merge_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            told = cast("dict[str, Any]", usage)
            self._usage.update({name: value for name, value in told.items() if value is not None})

    def _choices(self, fields: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the choices of the first index seen; there is more than one only if it was asked for."""
        choices = fields.get("choices")
        found: list[dict[str, Any]] = []
        for choice in cast("list[Any]", choices) if isinstance(choices, list) else []:
            if not isinstance(choice, dict):
                continue
            item = cast("dict[str, Any]", choice)
            index = item.get("index") or 0
            if not self.seen_choice:
                self.seen_choice, self._choice = True, index
            if index == self._choice:
                found.append(item)
        return found

    def _take_choice(self, choice: dict[str, Any]) -> list[Delta]:
        self._merge_usage(choice.get("usage"))
        stop = choice.get("finish_reason")
        if isinstance(stop, str) and (stop or self._stop is None):
            self._stop = stop
        delta = choice.get("delta")
        if not delta and not self._segments:
            delta = choice.get("message")
        if not isinstance(delta, dict):
            return []
        return self._take_delta(cast("dict[str, Any]", delta))

    def _take_delta(self, delta: dict[str, Any]) -> list[Delta]:
        deltas = self._take_reasoning(delta)
        deltas += self._take_content(delta.get("content"))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            deltas += self._add("text", refusal)
        calls = _listed(delta.get("tool_calls"))
        if calls:
            known = len(self._tools.calls)
            deltas += self._tools.feed(calls)
            for call in self._tools.calls[known:]:
                self._segments.append(_Segment("call", call=call))
        return deltas

    def _take_reasoning(self, delta: dict[str, Any]) -> list[Delta]:
        name, text = plain_reasoning(delta)
        details = self._details.feed(delta.get("reasoning_details"))
        if text:
            self._envelope.field = name
        elif self._envelope.field is None:
            text = details
        return self._add("reasoning", text)

    def _take_content(self, content: Any) -> list[Delta]:
        if isinstance(content, str):
            return [out for kind, text in self._splitter.feed(content) for out in self._add(kind, text)]
        deltas: list[Delta] = []
        for part in _listed(content):
            if isinstance(part, str):
                deltas += self._take_content(part)
            elif isinstance(part, dict):
                deltas += self._take_part(cast("dict[str, Any]", part))
        return deltas

    def _take_part(self, part: dict[str, Any]) -> list[Delta]:
        if part.get("type") == "thinking":
            text = _joined(part.get("thinking"))
            if text:
                self._envelope.field = "thinking_parts"
            return self._add("reasoning", text)
        if part.get("type") == "refusal":
            self._refused = True
            return self._add("text", _joined(part.get("refusal")))
        if part.get("type") in _TEXT_PARTS or "text" in part:
            return self._take_content(_joined(part.get("text")))
        return []

    def _add(self, kind: Literal["text", "reasoning"], text: str) -> list[Delta]:
        if not text:
            return []
        if not self._segments or self._segments[-1].kind != kind:
            self._segments.append(_Segment(kind))
        self._segments[-1].pieces.append(text)
        return [Delta(text=text) if kind == "text" else Delta(reasoning=text)]

    def finish(self, *, whole: bool) -> list[Delta]:
        """Return the last deltas, of which the very last carries the response.

        Args:
            whole: Whether the answer came as one JSON document, which has no end mark of its own.

        Raises:
            ProviderError: The answer is not complete, or tells that it failed.
        """
        if not self.seen_choice:
            raise self.malformed("an answer without choices") if whole else self.incomplete()
        if not whole and not self.done and not self._stop:
            raise self.incomplete()
        failed = _FAILED_STOPS.get((self._stop or "").lower())
        if failed is not None:
            told = f"the answer ended with {self._stop!r}"
            raise ProviderError(
                failed, sentence(failed, self._context.server, self._context.model, told), status=200
            )
        deltas = [out for kind, text in self._splitter.finish() for out in self._add(kind, text)]
        return [*deltas, Delta(response=self._response())]

    def _response(self) -> ProviderResponse:
        stop = self._stop_kind()
        calls = self._tools.blocks(self._context.taken_ids, cut=stop == "max_tokens")
        if not self._stop and any(call.raw_arguments is not None for call in calls):
            raise self.incomplete()
        if any(not call.name for call in calls):
            raise self.malformed("a tool call without a name")
        return ProviderResponse(
            blocks=tuple(self._blocks(calls)),
            usage=normalise(self._usage),
            stop=stop,
            stop_raw=self._stop,
            refusal=self._refused or stop == "refusal",
            request_id=request_id(self._context.headers) or self._id,
            model=self._model,
        )

    def _stop_kind(self) -> StopKind:
        known = _STOPS.get((self._stop or "stop").lower(), "other")
        if self._tools.calls and known in {"end_turn", "other"}:
            return "tool_use"
        if known == "tool_use" and not self._tools.calls:
            return "other"
        return "refusal" if self._refused and known == "end_turn" else known

    def _blocks(self, calls: list[ToolUseBlock]) -> list[AnswerPart]:
        blocks: list[AnswerPart] = []
        opaque = self._envelope.seal(self._details.items) if self._context.seal else None
        for segment in self._segments:
            text = clean_text("".join(segment.pieces))
            if segment.call is not None:
                blocks.append(calls[segment.call.position])
            elif segment.kind == "text":
                blocks.append(TextBlock(text=text))
            else:
                blocks.append(ReasoningBlock(text=text, data=opaque))
                opaque = self._envelope.seal([]) if opaque is not None else None
        if opaque is not None and not any(isinstance(block, ReasoningBlock) for block in blocks):
            blocks.insert(0, ReasoningBlock(data=opaque, redacted=True))
        return blocks

    def told_error(self, body: Any, default: ErrorKind | None = None) -> ProviderError:
        """Return the error that a body of status 200 tells."""
        return self._context.told_error(body, default)

    def malformed(self, said: str) -> ProviderError:
        """Return the error for something that is no answer."""
        return self._context.malformed(said)

    def incomplete(self) -> ProviderError:
        """Return the error for an answer that just ends."""
        return self._context.incomplete()


def _listed(value: Any) -> list[Any]:
    """Return a list as it is, an object as a list of one, and nothing for anything else."""
    if isinstance(value, dict):
        return [value]
    return cast("list[Any]", value) if isinstance(value, list) else []


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _joined(value: Any) -> str:
    """Return the text of a string, or of a list of text parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _joined(cast("dict[str, Any]", value).get("text"))
    if isinstance(value, list):
        return "".join(_joined(item) for item in cast("list[Any]", value))
    return ""
