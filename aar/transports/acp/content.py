"""Content blocks of the protocol from and to aar's own."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from aar.protocol.images import IMAGE_TYPES
from aar.protocol.messages import ContentBlock, ImageBlock, ResourceBlock, TextBlock
from aar.transports.acp.messages import RpcError, invalid_params, is_array, is_object

_MENTIONABLE = re.compile(r"[^\s@,;:!?'\"()<>]+")


def prompt_content(blocks: object, root: Path) -> tuple[ContentBlock, ...]:
    """Return a prompt as `Conversation.submit` takes it; text and links become one text.

    Args:
        blocks: ``prompt`` of ``session/prompt``.
        root: The workspace; links to files in it become ``@path``.

    Raises:
        RpcError: A block is none, or of a kind that no model of aar takes.
    """
    if not is_array(blocks) or not blocks:
        raise invalid_params("prompt must be a list of at least one content block")
    content: list[ContentBlock] = []
    texts: list[str] = []
    for place, block in enumerate(blocks):
        if not is_object(block):
            raise invalid_params(f"prompt[{place}] is no content block")
        made = _block(block, place, root)
        if isinstance(made, str):
            texts.append(made)
        else:
            content.append(made)
    text = "".join(texts)
    if text.strip():
        content.append(TextBlock(text=text))
    if not content:
        raise invalid_params("the prompt is empty")
    return tuple(content)


def _block(block: dict[str, Any], place: int, root: Path) -> ContentBlock | str:
    """Return a block; text and links as text."""
    kind = block.get("type")
    try:
        if kind == "text":
            return _text(block, "text")
        if kind == "image":
            return _image(block.get("mimeType"), _text(block, "data"), block.get("uri"))
        if kind == "resource_link":
            return _link(_text(block, "uri"), str(block.get("name") or ""), root)
        if kind == "resource":
            return _resource(block.get("resource"), root)
    except RpcError as error:
        raise invalid_params(f"prompt[{place}]: {error.message}") from None
    raise invalid_params(f"prompt[{place}] is of type {str(kind)[:40]!r}, which no model here takes")


def _text(block: dict[str, Any], key: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise RpcError(0, f"{key} must be a string")
    return value


def _image(mime_type: object, data: str, uri: object) -> ImageBlock:
    if mime_type not in IMAGE_TYPES:
        raise RpcError(0, f"images must be {', '.join(sorted(IMAGE_TYPES))}")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RpcError(0, "data is no base64") from None
    if not data:
        raise RpcError(0, "data is empty")
    name = Path(urlsplit(uri).path).name if isinstance(uri, str) else None
    return ImageBlock(media_type=str(mime_type), data=data, name=name or None)


def _resource(resource: object, root: Path) -> ContentBlock:
    if not is_object(resource):
        raise RpcError(0, "resource must be an object")
    uri = _text(resource, "uri")
    if isinstance(resource.get("text"), str):
        media_type = resource.get("mimeType")
        name = _shown(uri, root)
        return ResourceBlock(
            uri=name,
            text=resource["text"],
            media_type=media_type if isinstance(media_type, str) else "text/plain",
        )
    return _image(resource.get("mimeType"), _text(resource, "blob"), uri)


def _file_path(uri: str) -> str | None:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return unquote(parts.path)
    return uri if uri.startswith("/") else None


def _shown(uri: str, root: Path) -> str:
    """Return a file in the workspace by its relative path, as tools take it; anything else as it is."""
    path = _file_path(uri)
    if path is None:
        return uri
    relative = os.path.relpath(path, root)
    return path if relative.startswith("..") else relative


def _link(uri: str, name: str, root: Path) -> str:
    path = _file_path(uri)
    if path is None:
        return f"[{name or uri}]({uri})"
    shown = _shown(uri, root)
    return f"@{shown}" if _MENTIONABLE.fullmatch(shown) else f"`{shown}`"


def text_block(text: str) -> dict[str, Any]:
    """Return text as a content block."""
    return {"type": "text", "text": text}


def told_content(content: Iterable[ContentBlock]) -> list[dict[str, Any]]:
    """Return what a user said, for replay."""
    blocks: list[dict[str, Any]] = []
    for block in content:
        match block:
            case TextBlock():
                blocks.append(text_block(block.text))
            case ImageBlock():
                blocks.append({"type": "image", "data": block.data, "mimeType": block.media_type})
            case ResourceBlock():
                resource = {"uri": block.uri, "text": block.text, "mimeType": block.media_type}
                blocks.append({"type": "resource", "resource": resource})
    return blocks
