"""Bodies of the chat-completions wire: a stream of events, or one JSON document."""

from __future__ import annotations

from typing import Any, Protocol, cast

from pydantic_core import from_json

from aar.protocol.errors import ErrorKind
from aar.providers.base import Delta
from aar.providers.chat_completions.decode import AnswerContext, AnswerDecoder
from aar.providers.http.sse import SseDecoder, SseEvent

_BOM = b"\xef\xbb\xbf"


class Answer(Protocol):
    """Puts one answer together from the JSON documents of a body; `AnswerDecoder` is one.

    Attributes:
        done: Whether the end mark was seen.
        seen_choice: Whether anything of an answer was seen.
    """

    done: bool
    seen_choice: bool

    def feed(self, chunk: Any) -> list[Delta]:
        """Take one chunk, or one whole answer, and return what it adds."""
        ...

    def finish(self, *, whole: bool) -> list[Delta]:
        """Return the last deltas; the very last one carries the response."""
        ...


class BodyDecoder:
    """Reads the body of a successful response, whether it is a stream or one JSON document.

    Which it is shows in its first character: servers answer with either to either question, and their
    content types are not to be trusted.
    """

    def __init__(self, context: AnswerContext, answer: Answer | None = None) -> None:
        """Args: ``answer`` is what reads the documents; default: chat completions."""
        self._context = context
        self.answer: Answer = answer or AnswerDecoder(context)
        self._sse = SseDecoder()
        self._head: bytearray | None = bytearray()
        self._whole: list[bytes] | None = None

    @property
    def done(self) -> bool:
        """Whether the end mark was seen."""
        return self.answer.done

    def feed(self, piece: bytes) -> list[Delta]:
        """Take the next bytes and return what they add."""
        if self._whole is not None:
            self._whole.append(piece)
            return []
        if self._head is not None:
            self._head += piece
            head = bytes(self._head)
            start = head.removeprefix(_BOM).lstrip()
            if not start or _BOM.startswith(head):
                return []
            piece, self._head = bytes(self._head), None
            if start[:1] in b'{[<"':
                self._whole = [piece]
                return []
        return [delta for event in self._sse.feed(piece) for delta in self._event(event)]

    def finish(self) -> list[Delta]:
        """Return the last deltas; the very last one carries the response.

        Raises:
            ProviderError: The body is not a complete answer.
        """
        if self._whole is not None:
            return self._finish_whole(b"".join(self._whole))
        event = self._sse.finish()
        deltas = self._event(event) if event is not None else []
        if self._sse.junk and not self.answer.done and not self.answer.seen_choice:
            raise self._context.told_error(self._sse.junk.strip(), ErrorKind.MALFORMED_RESPONSE)
        return [*deltas, *self.answer.finish(whole=False)]

    def _finish_whole(self, body: bytes) -> list[Delta]:
        try:
            value = from_json(body.removeprefix(_BOM))
        except ValueError:
            text = body.decode("utf-8", "replace")
            if text.lstrip()[:1] == "<":
                raise self._context.told_error(text, ErrorKind.MALFORMED_RESPONSE) from None
            if _is_cut(body):
                raise self._context.incomplete() from None
            raise self._context.malformed(f"broken JSON, {text[:80]!r}") from None
        if isinstance(value, list) and len(cast("list[Any]", value)) == 1:
            value = cast("list[Any]", value)[0]
        if isinstance(value, str):
            raise self._context.told_error(value, ErrorKind.MALFORMED_RESPONSE)
        return [*self.answer.feed(value), *self.answer.finish(whole=True)]

    def _event(self, event: SseEvent) -> list[Delta]:
        if event.error is not None:
            raise self._context.told_error(event.error or event.data)
        data = event.data.strip()
        if data == "[DONE]":
            self.answer.done = True
            return []
        if not data:
            return []
        try:
            chunk = from_json(data)
        except ValueError:
            if event.event == "error":
                raise self._context.told_error(data) from None
            if not event.terminated:
                raise self._context.incomplete() from None
            raise self._context.malformed(f"a broken piece of a stream, {data[:80]!r}") from None
        if event.event == "error":
            raise self._context.told_error(chunk)
        return self.answer.feed(chunk)


def _is_cut(body: bytes) -> bool:
    """Tell whether ``body`` is the beginning of a JSON document."""
    try:
        from_json(body.removeprefix(_BOM), allow_partial=True)
    except ValueError:
        return False
    return True
