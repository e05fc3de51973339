"""Answers of Ollama's own wire: lines of JSON, or one document, to `Delta`s and one `ProviderResponse`.

Each line is read as the chunk of a chat completion that says the same, so that thinking between tags,
tool calls, errors and the order of blocks are dealt with in one place for both wires.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic_core import from_json

from aar.protocol.errors import ErrorKind, ProviderError
from aar.providers.base import Delta
from aar.providers.chat_completions.decode import AnswerContext, AnswerDecoder

_BOM = b"\xef\xbb\xbf"
_LINES_OF_ONE_VALUE = 5_000


class OllamaBodyDecoder:
    """Reads the body of a successful response. Feed it pieces of any size."""

    def __init__(self, context: AnswerContext) -> None:
        # Thinking goes back as plain text on this wire, so nothing of it is sealed.
        self.answer = AnswerDecoder(replace(context, seal=False))
        self._tail = bytearray()
        self._open: list[bytes] = []
        self._started = False

    @property
    def done(self) -> bool:
        """Whether the line with ``done: true`` was seen."""
        return self.answer.done

    def feed(self, piece: bytes) -> list[Delta]:
        """Take the next bytes and return what they add.

        Raises:
            ProviderError: A line tells an error, or is no JSON object.
        """
        self._tail += piece
        if b"\n" not in piece:
            return []
        *lines, rest = bytes(self._tail).split(b"\n")
        self._tail = bytearray(rest)
        return [delta for line in lines for delta in self._line(line)]

    def finish(self) -> list[Delta]:
        """Return the last deltas; the very last one carries the response.

        Raises:
            ProviderError: The body is not a complete answer.
        """
        deltas = self._line(bytes(self._tail)) if self._tail else []
        if self._open or not self.answer.done:
            raise self.answer.incomplete()
        return [*deltas, *self.answer.finish(whole=False)]

    def _line(self, line: bytes) -> list[Delta]:
        if not self._started:
            line = line.removeprefix(_BOM)
        if not line.strip():
            return []
        self._started = True
        value = self._value(line)
        return [] if value is None else self._chunk(value)

    def _value(self, line: bytes) -> dict[str, Any] | None:
        """Return the object that ``line`` completes; ``None`` when it is only the beginning of one."""
        text = b"\n".join([*self._open, line]) if self._open else line
        try:
            value = from_json(text)
        except ValueError:
            if _is_cut(text) and len(self._open) < _LINES_OF_ONE_VALUE:
                self._open.append(line)
                return None
            raise self._no_answer(text) from None
        self._open.clear()
        if not isinstance(value, dict):
            raise self._no_answer(text)
        return cast("dict[str, Any]", value)

    def _no_answer(self, text: bytes) -> ProviderError:
        said = text.decode("utf-8", "replace").strip()
        return self.answer.told_error(said[:2000], ErrorKind.MALFORMED_RESPONSE)

    def _chunk(self, value: dict[str, Any]) -> list[Delta]:
        if value.get("error"):
            raise self.answer.told_error(value)
        if "message" not in value and "done" not in value:
            raise self._no_answer(repr(value).encode())
        deltas = self.answer.feed(_as_chat_chunk(value))
        if value.get("done") is True:
            self.answer.done = True
        return deltas


def _as_chat_chunk(value: Mapping[str, Any]) -> dict[str, Any]:
    message = value.get("message")
    fields = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
    delta: dict[str, Any] = {
        "content": fields.get("content"),
        "reasoning": fields.get("thinking"),
        "tool_calls": _calls(fields.get("tool_calls")),
    }
    choice = {"index": 0, "delta": delta, "finish_reason": value.get("done_reason")}
    chunk: dict[str, Any] = {"model": value.get("model"), "choices": [choice]}
    if value.get("done") is True:
        chunk["usage"] = _usage(value)
    return chunk


def _calls(calls: Any) -> list[dict[str, Any]]:
    """Return calls without their index: each comes whole, and some servers number all of them 0."""
    found: list[dict[str, Any]] = []
    for call in cast("list[Any]", calls) if isinstance(calls, list) else []:
        if isinstance(call, dict):
            fields = cast("dict[str, Any]", call)
            found.append({"id": fields.get("id"), "function": fields.get("function")})
    return found


def _usage(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts; the tokens that were found in the cache are part of the prompt's."""
    return {
        "prompt_tokens": value.get("prompt_eval_count"),
        "completion_tokens": value.get("eval_count"),
        "cached_tokens": value.get("prompt_eval_cached_count"),
    }


def _is_cut(text: bytes) -> bool:
    """Tell whether ``text`` is the beginning of a JSON object."""
    if not text.lstrip().startswith(b"{"):
        return False
    try:
        from_json(text, allow_partial=True)
    except ValueError:
        return False
    return True
