"""What goes back unchanged to the Responses API: items that are no text and no call, and phases of messages.

Reasoning items (with their encrypted content) and the calls of tools that the server ran itself are kept
whole in ``ReasoningBlock.data``, sealed with the name of the server, so that no other server gets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from aar.protocol.messages import ReasoningBlock
from aar.providers.chat_completions.reasoning import unseal
from aar.providers.encoded import to_json

_CLIENT_ITEMS = frozenset(
    {"computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request"}
)
"""Calls that the client would have to answer; aar runs none of them, and without an answer they may not
go back."""
_REASONING_FIELDS = ("type", "id", "summary", "content", "encrypted_content")


def seal(server: str, item: Mapping[str, Any] | None, phase: str | None = None) -> str | None:
    """Return the opaque data for ``item`` and the phase of the message after it; ``None``: there is none."""
    kept = _returnable(item) if item else None
    if kept is None and phase is None:
        return None
    sealed: dict[str, Any] = {"server": server}
    if kept is not None:
        sealed["item"] = kept
    if phase is not None:
        sealed["phase"] = phase
    return to_json(sealed).decode()


def unsealed(block: ReasoningBlock, server: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return the item and the phase that were sealed for ``server``; another server's are nothing."""
    sealed = unseal(block.data, server) or {}
    item, phase = sealed.get("item"), sealed.get("phase")
    return (
        cast("dict[str, Any]", item) if isinstance(item, dict) else None,
        phase if isinstance(phase, str) else None,
    )


def with_phase(block: ReasoningBlock, server: str, phase: str) -> ReasoningBlock | None:
    """Return ``block`` with the phase of the message that follows it; ``None``: it cannot carry one."""
    item, _ = unsealed(block, server)
    if item is None:
        return None
    return block.model_copy(update={"data": seal(server, item, phase)})


def _returnable(item: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = item.get("type")
    if kind == "reasoning":
        # Without its content an item is a reference to something that the server was told not to store.
        if not item.get("encrypted_content") and not item.get("content"):
            return None
        kept = {name: item[name] for name in _REASONING_FIELDS if item.get(name)}
        return {"summary": [], **kept}
    if kind in _CLIENT_ITEMS:
        return None
    return {name: value for name, value in item.items() if value is not None}
