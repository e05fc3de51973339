"""Gemini's answers, streamed or whole, to `Delta`s and one `ProviderResponse`.

A stream is a row of partial answers of the same form as a whole one, so both are read alike.
Source: ``GenerateContentResponse`` of https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import TextBlock
from aar.protocol.text import clean_text
from aar.providers.base import AnswerPart, Delta, ProviderResponse, StopKind
from aar.providers.chat_completions.decode import AnswerContext
from aar.providers.gemini import seal as gemini_seal
from aar.providers.gemini.calls import Call
from aar.providers.gemini.errors import gemini_error
from aar.providers.gemini.usage import normalise
from aar.providers.http.errors import request_id

_REFUSALS = (
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR", "ESCALATION", "PUP_LIMITED_DISABLED",
)  # fmt: skip
_STOPS: dict[str, StopKind] = {
    "STOP": "end_turn",
    "FINISH_REASON_UNSPECIFIED": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "CONTINUATION": "max_tokens",
    **dict.fromkeys(_REFUSALS, "refusal"),
}
_OWN_FIELDS = frozenset(
    {"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "createTime"}
)


@dataclass(slots=True)
class _Segment:
    """Adjacent text or thinking up to a signature, or one call, or adjacent parts that are only kept."""

    kind: Literal["text", "thought", "call", "parts"]
    text: str = ""
    signature: str | None = None
    tail: int = 0
    call: Call | None = None
    parts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class GeminiContext(AnswerContext):
    """As everywhere, but errors are read with Gemini's quotas in mind."""

    __slots__ = ()

    def told_error(self, body: Any, default: ErrorKind | None = None) -> ProviderError:
        """Return the error that a body of status 200 tells."""
        return gemini_error(
            200,
            self.headers,
            body,
            server=self.server,
            model=self.model,
            secrets=self.secrets,
            default=default,
        )


class AnswerDecoder:
    """Puts one answer together from its pieces."""

    def __init__(self, context: GeminiContext) -> None:
        self._context = context
        self._segments: list[_Segment] = []
        self._calls: list[Call] = []
        self._usage: dict[str, Any] = {}
        self._candidate: Any = None
        self.seen_choice = False
        self.done = False  # Gemini has no end mark but the end of the body.
        self._listed = False
        self._stop: str | None = None
        self._blocked = False
        self._id: str | None = None
        self._model: str | None = None

    def feed(self, chunk: Any) -> list[Delta]:
        """Take one piece of a stream, or one whole answer, and return what it adds.

        Raises:
            ProviderError: It tells an error, or is no answer at all.
        """
        if isinstance(chunk, list):
            # The pieces of a stream, as one JSON list: what ``alt=json`` gives.
            self._listed = True
            return [delta for item in cast("list[Any]", chunk) for delta in self.feed(item)]
        if not isinstance(chunk, dict):
            raise self._context.malformed(json.dumps(chunk)[:200])
        fields = cast("dict[str, Any]", chunk)
        self._check(fields)
        usage = fields.get("usageMetadata")
        if isinstance(usage, dict):
            told = cast("dict[str, Any]", usage)
            self._usage.update({name: value for name, value in told.items() if value is not None})
        self._id = self._id or _string(fields.get("responseId"))
        self._model = self._model or _string(fields.get("modelVersion"))
        deltas = self._take_feedback(fields.get("promptFeedback"))
        for candidate in self._candidates(fields):
            deltas += self._take_candidate(candidate)
        return deltas

    def _check(self, fields: dict[str, Any]) -> None:
        if fields.get("error"):
            raise self._context.told_error(fields)
        if _OWN_FIELDS.isdisjoint(fields):
            if any(fields.get(name) for name in ("detail", "message", "msg", "errors")):
                raise self._context.told_error(fields, ErrorKind.MALFORMED_RESPONSE)
            raise self._context.malformed(json.dumps(fields)[:200])

    def _take_feedback(self, feedback: Any) -> list[Delta]:
        if not isinstance(feedback, dict):
            return []
        fields = cast("dict[str, Any]", feedback)
        reason = _string(fields.get("blockReason"))
        if reason is None:
            return []
        self._blocked = self.seen_choice = True
        why = _string(fields.get("blockReasonMessage")) or reason
        return [Delta(progress=f"{self._context.server} blocked the prompt: {clean_text(why)}")]

    def _candidates(self, fields: dict[str, Any]) -> list[dict[str, Any]]:
        """Return those of the first index seen; there is more than one only if it was asked for."""
        found: list[dict[str, Any]] = []
        for item in _dicts(fields.get("candidates")):
            index = item.get("index") or 0
            if self._candidate is None:
                self._candidate = index
            if index == self._candidate:
                self.seen_choice = True
                found.append(item)
        return found

    def _take_candidate(self, candidate: dict[str, Any]) -> list[Delta]:
        content = candidate.get("content")
        deltas: list[Delta] = []
        for part in _dicts(cast("dict[str, Any]", content).get("parts")) if isinstance(content, dict) else []:
            deltas += self._take_part(part)
        stop = _string(candidate.get("finishReason"))
        if stop is not None:
            self._stop = stop
            message = _string(candidate.get("finishMessage"))
            if message and stop not in {"STOP", "MAX_TOKENS"}:
                deltas.append(Delta(progress=f"{stop}: {clean_text(message)[:300]}"))
        return deltas

    def _take_part(self, part: dict[str, Any]) -> list[Delta]:
        signature = _string(part.get("thoughtSignature"))
        call = part.get("functionCall")
        if isinstance(call, dict):
            return self._take_call(cast("dict[str, Any]", call), signature)
        text = part.get("text")
        if isinstance(text, str):
            return self._take_text(text, signature, thought=part.get("thought") is True)
        if part:
            if not self._segments or self._segments[-1].kind != "parts":
                self._segments.append(_Segment("parts"))
            self._segments[-1].parts.append(part)
        return []

    def _take_text(self, text: str, signature: str | None, *, thought: bool) -> list[Delta]:
        kind: Literal["text", "thought"] = "thought" if thought else "text"
        if not text and signature is None:
            return []
        last = self._segments[-1] if self._segments else None
        if last is None or last.kind != kind or last.signature is not None:
            last = _Segment(kind)
            self._segments.append(last)
        last.text += text
        if signature is not None:
            last.signature, last.tail = signature, len(clean_text(text))
        if not text:
            return []
        return [Delta(reasoning=text) if thought else Delta(text=text)]

    def _take_call(self, told: dict[str, Any], signature: str | None) -> list[Delta]:
        last = self._calls[-1] if self._calls else None
        name = _string(told.get("name"))
        if last is not None and last.open and name in {None, last.name}:
            last.take(told, signature)
            return [] if last.open else [self._call_delta(last, None)]
        if name is None:
            raise self._context.malformed("a tool call without a name")
        call = Call(name)
        call.take(told, signature)
        self._calls.append(call)
        self._segments.append(_Segment("call", call=call))
        if call.open:
            return [Delta(tool_index=len(self._calls) - 1, tool_name=name)]
        return [self._call_delta(call, name)]

    def _call_delta(self, call: Call, name: str | None) -> Delta:
        written = json.dumps({} if call.arguments is None else call.arguments, ensure_ascii=False)
        return Delta(tool_index=len(self._calls) - 1, tool_name=name, tool_arguments=written)

    def finish(self, *, whole: bool) -> list[Delta]:
        """Return the last delta, which carries the response.

        Args:
            whole: Whether the answer came as one JSON document, which cannot be cut unnoticed.

        Raises:
            ProviderError: The answer is not complete.
        """
        if not self.seen_choice:
            raise (
                self._context.malformed("an answer without candidates")
                if whole
                else self._context.incomplete()
            )
        if (self._listed or not whole) and self._stop is None and not self._blocked:
            raise self._context.incomplete()
        return [Delta(response=self._response())]

    def _response(self) -> ProviderResponse:
        stop = self._stop_kind()
        return ProviderResponse(
            blocks=tuple(self._blocks()),
            usage=normalise(self._usage),
            stop=stop,
            stop_raw=self._stop,
            refusal=stop == "refusal",
            request_id=request_id(self._context.headers) or self._id,
            model=self._model,
        )

    def _stop_kind(self) -> StopKind:
        if self._blocked and not self._segments:
            return "refusal"
        known = _STOPS.get((self._stop or "STOP").upper(), "other")
        return "tool_use" if self._calls and known in {"end_turn", "other"} else known

    def _blocks(self) -> list[AnswerPart]:
        server = gemini_seal.seal_name(self._context.server)
        taken = set(self._context.taken_ids)
        blocks: list[AnswerPart] = []
        first_call: int | None = None
        for segment in self._segments:
            text = clean_text(segment.text)
            if segment.call is not None:
                first_call = len(blocks) if first_call is None else first_call
                blocks.append(segment.call.block(taken))
                taken.add(segment.call.call_id)
            elif segment.kind == "thought":
                blocks.append(gemini_seal.thought(server, text, segment.signature, segment.tail))
            elif segment.kind == "parts":
                blocks.append(gemini_seal.raw_parts(server, segment.parts))
            else:
                blocks += [TextBlock(text=text)] if text else []
                if segment.signature is not None:
                    blocks.append(gemini_seal.signed_text(server, segment.signature, segment.tail))
        notes = {call.call_id: call.note for call in self._calls if call.note}
        if notes and first_call is not None:
            blocks.insert(first_call, gemini_seal.calls(server, notes))
        return blocks


def _dicts(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; an object alone counts as a list of one."""
    if isinstance(value, dict):
        return [cast("dict[str, Any]", value)]
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
