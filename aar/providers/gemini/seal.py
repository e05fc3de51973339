"""What of a Gemini answer must go back unchanged, and how it survives in a session.

Thought signatures sit on parts of any kind: on thoughts, on text, on empty text, on the first of several
parallel calls. aar's events keep opaque data on reasoning only, so each signature is sealed into
``ReasoningBlock.data`` beside the part that it belongs to, together with the server's own ids of calls and
with whole parts that mean nothing to aar (code that Google ran, and its output).

Source: https://ai.google.dev/gemini-api/docs/thought-signatures
"""

from __future__ import annotations

import json
from typing import Any

from aar.protocol.messages import ReasoningBlock
from aar.providers.chat_completions.reasoning import unseal as _unseal

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""What Google tells to send for a call that another model made, where a signature is demanded."""


def seal_name(host: str) -> str:
    """Return the name under which things are sealed for ``host``.

    It is never a bare host: another wire spoken to the same host must not take these seals for its own.
    """
    return f"gemini:{host}"


def thought(server: str, text: str, signature: str | None, tail: int) -> ReasoningBlock:
    """Return a block of thinking; the signature sits on its last ``tail`` characters."""
    return _block(server, {"thought": True} | _signed(signature, tail), text)


def signed_text(server: str, signature: str, tail: int) -> ReasoningBlock:
    """Return what follows a text whose last ``tail`` characters came with ``signature``."""
    return _block(server, {"text": True} | _signed(signature, tail))


def calls(server: str, notes: dict[str, dict[str, str]]) -> ReasoningBlock:
    """Return what precedes the calls of an answer.

    Args:
        server: For whom it is sealed.
        notes: By aar's id of a call: the server's ``id`` and ``signature``, as far as there are any.
    """
    return _block(server, {"calls": notes})


def raw_parts(server: str, parts: list[dict[str, Any]]) -> ReasoningBlock:
    """Return a block that keeps whole parts."""
    return _block(server, {"parts": parts})


def unseal(block: ReasoningBlock, server: str) -> dict[str, Any] | None:
    """Return what was sealed for ``server``; ``None`` for another server's or vendor's thinking."""
    return _unseal(block.data, server)


def _signed(signature: str | None, tail: int) -> dict[str, Any]:
    return {} if signature is None else {"signature": signature, "tail": tail}


def _block(server: str, content: dict[str, Any], text: str = "") -> ReasoningBlock:
    data = json.dumps({"server": server, **content}, ensure_ascii=False, separators=(",", ":"))
    return ReasoningBlock(text=text, data=data, redacted=not text)
