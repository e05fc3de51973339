"""Answers of the Responses API, streamed or whole, to `Delta`s and one `ProviderResponse`.

Items are known by their place in the output only: some servers give an item another id in every event.
What an event tells in full (``….done``) completes what came in pieces, so servers that send no pieces, or
nothing but the whole, are read alike.
"""

from __future__ import annotations

import json
from typing import Any, cast

from aar.protocol.errors import ErrorKind, ProviderError
from aar.providers.base import Delta, ProviderResponse, StopKind
from aar.providers.chat_completions.decode import AnswerContext
from aar.providers.chat_completions.usage import normalise
from aar.providers.http.errors import request_id
from aar.providers.openai.items import Items

_PIECES = {
    "response.output_text.delta": ("message", "text"),
    "response.refusal.delta": ("message", "refusal"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary"),
    "response.reasoning_text.delta": ("reasoning", "content"),
    "response.reasoning.delta": ("reasoning", "content"),
    "response.function_call_arguments.delta": ("function_call", "arguments"),
    "response.custom_tool_call_input.delta": ("custom_tool_call", "arguments"),
}
_WHOLES = {
    "response.output_text.done": ("message", "text", "text"),
    "response.refusal.done": ("message", "refusal", "refusal"),
    "response.reasoning_summary_text.done": ("reasoning", "summary", "text"),
    "response.reasoning_text.done": ("reasoning", "content", "text"),
    "response.function_call_arguments.done": ("function_call", "arguments", "arguments"),
    "response.custom_tool_call_input.done": ("custom_tool_call", "arguments", "input"),
}
_ENDS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
)
_RUNNING = frozenset({"", "in_progress", "queued"})


class ResponsesDecoder:
    """Puts one answer together from its events, or from one whole response.

    Attributes:
        done: Whether a ``[DONE]`` mark was seen; this wire has its own end, so it means nothing.
        seen_choice: Whether anything of an answer was seen.
    """

    def __init__(self, context: AnswerContext) -> None:
        self._context = context
        self._items = Items(context.server)
        self._usage: dict[str, Any] = {}
        self._status = ""
        self._reason = ""
        self._id: str | None = None
        self._model: str | None = None
        self.seen_choice = False
        self.done = False

    def feed(self, chunk: Any) -> list[Delta]:
        """Take one event, or one whole response, and return what it adds.

        Raises:
            ProviderError: It tells an error, or is neither.
        """
        if not isinstance(chunk, dict):
            raise self._context.malformed(json.dumps(chunk)[:200])
        event = cast("dict[str, Any]", chunk)
        kind = event.get("type")
        if event.get("object") == "response" or (kind is None and isinstance(event.get("output"), list)):
            return self._take_response(event)
        if kind == "error" or (event.get("error") and not isinstance(event.get("response"), dict)):
            raise self._told_error(event)
        if not isinstance(kind, str):
            if any(event.get(name) for name in ("detail", "message", "msg", "errors")):
                raise self._context.told_error(event, ErrorKind.MALFORMED_RESPONSE)
            raise self._context.malformed(json.dumps(event)[:200])
        return self._take_event(kind, event)

    def _take_event(self, kind: str, event: dict[str, Any]) -> list[Delta]:
        self.seen_choice = True
        response = event.get("response")
        if isinstance(response, dict):
            fields = cast("dict[str, Any]", response)
            if kind not in _ENDS:
                self._take_head(fields)
                return []
            # The name of the event tells the end where the response in it does not.
            ended = kind.removeprefix("response.").replace("done", "completed")
            return self._take_response({**fields, "status": fields.get("status") or ended})
        if kind in _PIECES:
            item, part = _PIECES[kind]
            return self._items.piece(event, item, part, event.get("delta"))
        if kind in _WHOLES:
            item, part, name = _WHOLES[kind]
            return self._items.whole(event, item, part, event.get(name))
        if kind in {"response.output_item.added", "response.output_item.done"}:
            return self._items.item(event, finished=kind.endswith("done"))
        if kind in {"response.content_part.added", "response.content_part.done"}:
            return self._items.part(event)
        return []

    def _take_head(self, response: dict[str, Any]) -> None:
        self._id = self._id or _string(response.get("id"))
        self._model = _string(response.get("model")) or self._model

    def _take_response(self, response: dict[str, Any]) -> list[Delta]:
        """Take a whole response: the body of one that was not streamed, or the end of a stream."""
        self.seen_choice = True
        self._take_head(response)
        self._status = _string(response.get("status")) or ("completed" if "output" in response else "")
        if response.get("error") or self._status in {"failed", "cancelled"}:
            raise self._told_error(response)
        details = response.get("incomplete_details")
        if isinstance(details, dict):
            self._reason = _string(cast("dict[str, Any]", details).get("reason")) or ""
        usage = response.get("usage")
        if isinstance(usage, dict):
            self._usage = cast("dict[str, Any]", usage)
        output = response.get("output")
        return self._items.output(cast("list[Any]", output)) if isinstance(output, list) else []

    def _told_error(self, event: dict[str, Any]) -> ProviderError:
        error: Any = event.get("error") or event
        if error is event and not event.get("message"):
            error = {"message": f"the answer ended with {self._status or 'error'!r}"}
        return self._context.told_error({"error": error}, ErrorKind.PROVIDER_INTERNAL)

    def finish(self, *, whole: bool) -> list[Delta]:
        """Return the last delta, which carries the response.

        Args:
            whole: Whether the answer came as one JSON document.

        Raises:
            ProviderError: The answer is not complete.
        """
        if not self.seen_choice and whole:
            raise self._context.malformed("an answer without output")
        if self._status in _RUNNING:
            raise self._context.incomplete()
        blocks = self._items.blocks(self._context, cut=self._status == "incomplete")
        refused = self._items.refused or self._reason == "content_filter"
        response = ProviderResponse(
            blocks=tuple(blocks),
            usage=normalise(self._usage),
            stop=self._stop(refused=refused),
            stop_raw=self._status,
            refusal=refused,
            request_id=request_id(self._context.headers) or self._id,
            model=self._model,
        )
        return [Delta(response=response)]

    def _stop(self, *, refused: bool) -> StopKind:
        if self._status == "incomplete":
            if self._reason in {"max_output_tokens", "max_tokens"}:
                return "max_tokens"
            return "refusal" if refused else "other"
        if self._items.calls:
            return "tool_use"
        return "refusal" if refused else "end_turn"


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
