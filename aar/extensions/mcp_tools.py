"""Tools of MCP servers as aar's own: names, effects, schemas, and results as text and images."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, cast

from aar.extensions.mcp_link import ServerLink
from aar.protocol.errors import ToolCategory, ToolFailure, tool_error_text
from aar.protocol.images import IMAGE_TYPES
from aar.protocol.messages import ImageBlock
from aar.protocol.ports import ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.safety.sanitize import sanitize

JsonDict = dict[str, Any]
MAX_NAME = 64
"""Characters of a tool's name that all model servers take."""
_MAX_DESCRIPTION = 4000
_MAX_SCHEMA_CHARS = 20_000
_MAX_TEXT = 10_000_000
_MAX_IMAGES = 10
_MAX_IMAGE_CHARS = 7_000_000
_SCHEMA_TEXT = frozenset({"title", "description", "examples", "default", "$comment"})
_CHANGED = "This tool changed after the user accepted it. A call asks the user first."


def tool_name(server: str, tool: str, taken: Mapping[str, object]) -> str:
    """Return ``mcp__server__tool`` as model servers take it; a name that is taken gets a number."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", tool) or "tool"
    name = f"mcp__{server}__{plain}"[:MAX_NAME]
    number = 2
    while name in taken:
        tail = f"_{number}"
        name = f"mcp__{server}__{plain}"[: MAX_NAME - len(tail)] + tail
        number += 1
    return name


def make_tool(link: ServerLink, tool: JsonDict, name: str) -> ToolSpec:
    """Return a server's tool as a `ToolSpec`; one that changed is shown without the server's words."""
    original = str(tool.get("name"))
    changed = original in link.changed_tools
    reads = _only_reads(link, tool)
    said = sanitize(str(tool.get("description") or ""))[:_MAX_DESCRIPTION]
    schema = _schema(tool.get("inputSchema"), plain=changed)

    async def handler(arguments: Any, context: ToolContext) -> ToolOutcome:
        if original in link.changed_tools:
            await _ask_again(link, tool, context)
        found = next((item for item in link.tools if item.get("name") == original), tool)
        _check(name, _schema(found.get("inputSchema"), plain=False), arguments)
        result = await link.calls.tool(original, dict(arguments), context, reads=reads)
        return outcome(result)

    return ToolSpec(
        name=name,
        description=_CHANGED if changed else said or f"A tool of the MCP server {link.spec.name}.",
        input_schema=schema,
        side_effects=frozenset({SideEffect.READ} if reads else {SideEffect.EXTERNAL}),
        handler=handler,
        concurrency="parallel" if reads else "serial",
        summary=f"{link.spec.name}: {_summary(original, said, changed=changed)}",
    )


def _summary(name: str, said: str, *, changed: bool) -> str:
    return "changed; asks first" if changed else (said.strip() or name).splitlines()[0][:80]


def _only_reads(link: ServerLink, tool: JsonDict) -> bool:
    """Tell whether a tool says of itself that it only reads, and cannot reach out while it does.

    Nothing said means destructive. A server outside of the wall, or with a network, may send what it reads.
    """
    hints = cast("JsonDict", tool.get("annotations") or {})
    if hints.get("readOnlyHint") is not True or hints.get("destructiveHint") is True:
        return False
    config = link.spec.config
    walled = link.spec.kind == "stdio" and config.sandbox and not config.network
    return walled and link.world.spawner.wall != "none"


def _schema(found: Any, *, plain: bool) -> JsonDict:
    """Return a schema that model servers take: an object, of bounded size."""
    schema: JsonDict = cast("JsonDict", found) if isinstance(found, dict) else {}
    if plain:
        schema = cast("JsonDict", _without_words(schema))
    schema = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    schema["type"] = "object"
    if not isinstance(schema.get("properties"), dict):
        schema["properties"] = {}
    if not isinstance(schema.get("required", []), list):
        del schema["required"]
    if len(json.dumps(schema)) > _MAX_SCHEMA_CHARS:
        return {"type": "object", "properties": {}, "description": "The schema is too large to show."}
    return schema


def _without_words(node: Any, *, names: bool = False) -> Any:
    """Return a schema without texts that speak to a model; names of properties stay."""
    if isinstance(node, list):
        return [_without_words(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_words(value, names=key == "properties" and not names)
        for key, value in cast("JsonDict", node).items()
        if names or key not in _SCHEMA_TEXT
    }


async def _ask_again(link: ServerLink, tool: JsonDict, context: ToolContext) -> None:
    name = str(tool.get("name"))
    server = link.spec.name
    question = (
        f"The tool {name} of the MCP server {server} is new or has changed since you accepted the server. It "
        f"says now:\n{str(tool.get('description') or '(nothing)')[:2000]}\nUse it from now on?"
    )
    answer = await context.ask(sanitize(question), ["Yes", "No"])
    if answer == "Yes":
        link.accept([name])
        return
    who = "The user did not accept it" if answer is not None else "Nobody is there to accept it"
    raise ToolFailure(
        ToolCategory.BLOCKED,
        f"{name} of {server} changed after it was accepted. {who}; `aar mcp approve {server}` accepts it.",
    )


def _check(name: str, schema: JsonDict, arguments: Mapping[str, Any]) -> None:
    """Check arguments against the whole schema, where the schema itself is sound."""
    import jsonschema

    try:
        jsonschema.validate(dict(arguments), schema)
    except jsonschema.ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path)
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS, f"{name}: {where + ': ' if where else ''}{error.message[:500]}."
        ) from error
    except Exception:  # a schema that is none: the server judges its arguments itself
        return


def outcome(result: JsonDict) -> ToolOutcome:
    """Return what came back from a call: texts, images, structured data."""
    texts, images = contents(cast("list[JsonDict]", result.get("content") or []))
    structured = result.get("structuredContent")
    if structured is not None and not any(text.strip() for text in texts):
        texts.append(json.dumps(structured, ensure_ascii=False, indent=1))
    text = "\n".join(texts)[:_MAX_TEXT] or ("" if images else "The tool returned nothing.")
    if result.get("isError"):
        return ToolOutcome(
            output=tool_error_text(ToolCategory.EXCEPTION, text),
            images=images,
            is_error=True,
            category=ToolCategory.EXCEPTION,
        )
    return ToolOutcome(output=text, images=images)


def contents(items: list[JsonDict]) -> tuple[list[str], tuple[ImageBlock, ...]]:
    """Return the texts and images of content blocks; what is neither is named."""
    texts: list[str] = []
    images: list[ImageBlock] = []
    for item in items:
        kind = item.get("type")
        if kind == "text":
            texts.append(str(item.get("text", "")))
        elif kind == "image":
            texts += _add_image(images, item)
        elif kind == "resource_link":
            texts.append(f"[resource {item.get('uri')}: {item.get('name') or ''}]")
        elif kind == "resource":
            texts.append(resource_text(cast("JsonDict", item.get("resource") or {}), images))
        else:
            texts.append(f"[{kind or 'content'} of type {item.get('mimeType')} is not shown]")
    return texts, tuple(images)


def resource_text(item: JsonDict, images: list[ImageBlock] | None = None) -> str:
    """Return a resource's content as text; an image goes to ``images`` where that is given."""
    if "text" in item:
        return str(item["text"])
    media_type, blob = str(item.get("mimeType") or ""), str(item.get("blob") or "")
    if images is not None and media_type in IMAGE_TYPES:
        return "\n".join(_add_image(images, {"mimeType": media_type, "data": blob})) or f"[{item.get('uri')}]"
    return f"[{item.get('uri')}: {len(blob) * 3 // 4:,} bytes of {media_type or 'unknown type'}, not shown]"


def _add_image(images: list[ImageBlock], item: JsonDict) -> list[str]:
    """Add an image, or return why it is left out."""
    media_type, data = str(item.get("mimeType") or ""), str(item.get("data") or "")
    if media_type not in IMAGE_TYPES:
        return [f"[an image of type {sanitize(media_type)[:40]} is not shown]"]
    if len(images) >= _MAX_IMAGES or len(data) > _MAX_IMAGE_CHARS:
        return ["[an image is left out: too many or too large]"]
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return ["[an image is left out: its data is not base64]"]
    images.append(ImageBlock(media_type=media_type, data=data))
    return []
