"""The binary event stream in which Amazon Bedrock sends answers, turned into server-sent events.

Each message is: its length, the length of its headers, a checksum of these two, the headers, the payload and
a checksum of it all. A payload of ``chunk`` is ``{"bytes": base64}`` around one event of the Messages wire.

Source: https://smithy.io/2.0/aws/amazon-eventstream.html
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any, cast

from pydantic_core import from_json

_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_LIMIT = 32_000_000
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_PREFIXED = frozenset({6, 7})


class EventStreamDecoder:
    """Turns bytes, cut anywhere, into the bytes of server-sent events."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> bytes:
        """Take the next bytes and return the events that they complete.

        Raises:
            ValueError: It is no event stream, or a checksum is wrong.
        """
        self._buffer += piece
        events: list[bytes] = []
        while (message := self._message()) is not None:
            events.append(_event(*message))
        return b"".join(events)

    def _message(self) -> tuple[dict[str, str], bytes] | None:
        if len(self._buffer) < _PRELUDE.size:
            return None
        total, headers, checksum = _PRELUDE.unpack_from(self._buffer)
        least = _PRELUDE.size + headers + _CHECKSUM.size
        if zlib.crc32(self._buffer[:8]) != checksum or not least <= total <= _LIMIT:
            raise ValueError("the stream is no event stream")
        if len(self._buffer) < total:
            return None
        message = bytes(self._buffer[:total])
        del self._buffer[:total]
        if zlib.crc32(message[:-4]) != _CHECKSUM.unpack_from(message, total - 4)[0]:
            raise ValueError("a message of the stream has a wrong checksum")
        start = _PRELUDE.size + headers
        return _headers(message[_PRELUDE.size : start]), message[start:-4]


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers whose values are text."""
    found: dict[str, str] = {}
    place = 0
    while place < len(data):
        size = data[place]
        name = data[place + 1 : place + 1 + size].decode("utf-8", "replace")
        place += 1 + size
        kind = data[place]
        place += 1
        if kind not in _PREFIXED:
            place += _SIZES[kind]
            continue
        (length,) = struct.unpack_from(">H", data, place)
        found[name] = data[place + 2 : place + 2 + length].decode("utf-8", "replace")
        place += 2 + length
    return found


def _event(headers: dict[str, str], payload: bytes) -> bytes:
    kind = headers.get(":message-type", "event")
    if kind == "event":
        fields = _fields(payload)
        if not isinstance(fields.get("bytes"), str):
            return b""
        return b"data: " + base64.b64decode(fields["bytes"]).replace(b"\n", b" ") + b"\n\n"
    name = headers.get(":exception-type") or headers.get(":error-code") or "api_error"
    said = _fields(payload).get("message") or headers.get(":error-message") or name
    error = {"type": "error", "error": {"type": name, "message": said}}
    return b"data: " + json.dumps(error).encode() + b"\n\n"


def _fields(payload: bytes) -> dict[str, Any]:
    try:
        value = from_json(payload)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
