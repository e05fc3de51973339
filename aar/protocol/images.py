"""Images that models take: PNG, JPEG, GIF and WebP, known by their names or by their first bytes."""

from __future__ import annotations

IMAGE_SUFFIXES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""Media types by the end of a file's name, in lower case."""
IMAGE_TYPES = frozenset(IMAGE_SUFFIXES.values())
"""Media types of images that models take."""


def image_type(head: bytes) -> str | None:
    """Return the media type of an image by its first 12 bytes; ``None``: models take no such thing."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None
