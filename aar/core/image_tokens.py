"""How many tokens an image is, by the vendors' published formulae and the size that its header tells.

- Anthropic: pixels / 750, the longer edge scaled to 1,568 at most.
  https://docs.claude.com/en/docs/build-with-claude/vision
- OpenAI (tiles): 85 and 170 for each tile of 512 after fitting into 2,048 and the shorter edge to 768;
  newer models count patches of 32, 1,536 at most. https://platform.openai.com/docs/guides/images-vision
- Google: 258 for each tile of 768. https://ai.google.dev/gemini-api/docs/tokens

Which of them holds is the server's matter, so the highest is taken.
"""

from __future__ import annotations

import base64
import binascii
from math import ceil

UNKNOWN_SIZE = 2_500
"""Tokens of an image whose size cannot be read: what a large one costs at most of the servers."""
_HEAD_CHARS = 64_000
_MOST = 10_000


def image_tokens(data: str) -> int:
    """Return about how many tokens an image is, erring on the high side.

    Args:
        data: Base64 of a png, jpeg, gif or webp file; only its beginning is looked at.
    """
    size = image_size(data)
    if size is None:
        return UNKNOWN_SIZE
    width, height = size
    return min(max(_anthropic(width, height), _openai(width, height), _google(width, height)), _MOST)


def _anthropic(width: int, height: int) -> int:
    scale = min(1.0, 1568 / max(width, height))
    return ceil(width * scale * height * scale / 750)


def _openai(width: int, height: int) -> int:
    fit = min(1.0, 2048 / max(width, height))
    w, h = width * fit, height * fit
    shrink = min(1.0, 768 / min(w, h))
    tiles = ceil(w * shrink / 512) * ceil(h * shrink / 512)
    patches = min(ceil(width / 32) * ceil(height / 32), 1536)
    return max(85 + 170 * tiles, patches)


def _google(width: int, height: int) -> int:
    fit = min(1.0, 3072 / max(width, height))
    return 258 * max(1, ceil(width * fit / 768) * ceil(height * fit / 768))


def image_size(data: str) -> tuple[int, int] | None:
    """Return width and height in pixels as the file's header tells them; ``None``: it does not."""
    try:
        head = base64.b64decode(data[: _HEAD_CHARS - _HEAD_CHARS % 4], validate=False)
    except (binascii.Error, ValueError):
        return None
    try:
        size = _read_size(head)
    except IndexError:
        return None
    return size if size is not None and min(size) > 0 else None


def _read_size(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head.startswith(b"\xff\xd8"):
        return _jpeg(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp(head)
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(head[at + 7 : at + 9]), int.from_bytes(head[at + 5 : at + 7])
        else:
            at += 2 + int.from_bytes(head[at + 2 : at + 4])
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        size = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
        return size[0] & 0x3FFF, size[1] & 0x3FFF
    return None
