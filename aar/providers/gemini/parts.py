"""Messages as lists of Gemini's parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aar.protocol.messages import (
    ImageBlock,
    Message,
    ReasoningBlock,
    ResourceBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from aar.providers.encoded import arguments_of, resource_text
from aar.providers.gemini.seal import FOREIGN_SIGNATURE, unseal

Part = dict[str, Any]


@dataclass(slots=True)
class ModelTurn:
    """An answer as it goes back.

    Attributes:
        parts: Its parts.
        calls: By aar's id of each call: the server's own, where it gave one.
    """

    parts: list[Part] = field(default_factory=list[Part])
    calls: dict[str, str | None] = field(default_factory=dict[str, "str | None"])


def user_parts(message: Message, calls: Mapping[str, str | None], *, images_inside: bool) -> list[Part]:
    """Return the results of calls first, as Gemini demands, then all the rest.

    Args:
        message: Of the user.
        calls: The server's own ids of earlier calls; only those go back.
        images_inside: Whether a result may carry its images itself (from the third generation on).
    """
    results: list[Part] = []
    rest: list[Part] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            results.append(_result(block, calls.get(block.call_id), images_inside=images_inside))
            if block.images and not images_inside:
                rest.append({"text": f"Images from {block.name or 'the tool'}:"})
                rest += [_image(image) for image in block.images]
        elif isinstance(block, TextBlock) and block.text:
            rest.append({"text": block.text})
        elif isinstance(block, ResourceBlock):
            rest.append({"text": resource_text(block)})
        elif isinstance(block, ImageBlock):
            rest.append(_image(block))
    return results + rest


def _result(block: ToolResultBlock, server_id: str | None, *, images_inside: bool) -> Part:
    response: Part = {"name": block.name or "tool", "response": {_result_key(block): block.output}}
    if server_id is not None:
        response["id"] = server_id
    if block.images and images_inside:
        response["parts"] = [_image(image) for image in block.images]
    return {"functionResponse": response}


def _result_key(block: ToolResultBlock) -> str:
    return "error" if block.is_error else "output"


def _image(image: ImageBlock) -> Part:
    return {"inlineData": {"mimeType": image.media_type, "data": image.data}}


def model_parts(message: Message, server: str, *, demand_signature: bool) -> ModelTurn:
    """Return an answer with everything that ``server`` sealed for itself back in its place.

    Args:
        message: Of the model, this one or another vendor's, whose thinking is left out.
        server: Name under which things were sealed.
        demand_signature: Whether the first call must have a signature, else the request is refused.
    """
    turn = ModelTurn()
    notes: dict[str, dict[str, str]] = {}
    for block in message.content:
        if isinstance(block, ReasoningBlock):
            _sealed(turn.parts, block, notes, server)
        elif isinstance(block, TextBlock) and block.text:
            turn.parts.append({"text": block.text})
        elif isinstance(block, ToolUseBlock):
            note = notes.get(block.call_id, {})
            turn.calls[block.call_id] = note.get("id")
            turn.parts.append(_call(block, note))
    if demand_signature:
        first = next((part for part in turn.parts if "functionCall" in part), None)
        if first is not None:
            first.setdefault("thoughtSignature", FOREIGN_SIGNATURE)
    return turn


def _sealed(parts: list[Part], block: ReasoningBlock, notes: dict[str, dict[str, str]], server: str) -> None:
    seal = unseal(block, server)
    if seal is None:
        return
    notes.update(seal.get("calls", {}))
    parts += seal.get("parts", ())
    if seal.get("thought"):
        parts += _signed_tail(block.text, seal, {"thought": True})
    elif seal.get("text"):
        before = parts.pop()["text"] if parts and set(parts[-1]) == {"text"} else ""
        parts += _signed_tail(before, seal, {})


def _signed_tail(text: str, seal: Mapping[str, Any], marks: Part) -> list[Part]:
    """Return ``text`` as one part, or as two of which the last bears the signature, as it came."""
    signature = seal.get("signature")
    if signature is None:
        return [{"text": text, **marks}] if text else []
    place = len(text) - min(int(seal.get("tail", 0)), len(text))
    parts: list[Part] = [{"text": text[:place], **marks}] if place else []
    return [*parts, {"text": text[place:], **marks, "thoughtSignature": signature}]


def _call(block: ToolUseBlock, note: Mapping[str, str]) -> Part:
    call: Part = {"name": block.name, "args": arguments_of(block)}
    if "id" in note:
        call["id"] = note["id"]
    part: Part = {"functionCall": call}
    if "signature" in note:
        part["thoughtSignature"] = note["signature"]
    return part
