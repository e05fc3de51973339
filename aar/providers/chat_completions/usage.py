"""Usage as told by servers of the chat-completions wire, in aar's one form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from aar.protocol.usage import Usage


def normalise(raw: Mapping[str, Any]) -> Usage | None:
    """Return ``raw`` in aar's form; ``None`` when it tells no token counts.

    Prompt tokens include cached ones on this wire. Most servers count reasoning as part of the
    completion; some do not, which shows in a total that is larger by just that number.
    """
    prompt = _first(raw, "prompt_tokens", "input_tokens")
    completion = _first(raw, "completion_tokens", "output_tokens")
    if prompt is None and completion is None:
        return None
    prompt, completion = prompt or 0, completion or 0
    before = _details(raw, "prompt_tokens_details", "input_tokens_details")
    after = _details(raw, "completion_tokens_details", "output_tokens_details")
    read = _first(before, "cached_tokens")
    if read is None:
        read = _first(raw, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens") or 0
    write = _first(before, "cache_write_tokens", "cache_creation_tokens")
    if write is None:
        write = _first(raw, "cache_creation_input_tokens", "cache_write_tokens") or 0
    reasoning = _first(after, "reasoning_tokens")
    if reasoning is None:
        reasoning = _first(raw, "reasoning_tokens") or 0
    outside = reasoning > 0 and _first(raw, "total_tokens") == prompt + completion + reasoning
    return Usage(
        input=prompt - read - write if read + write <= prompt else prompt,
        output=completion + reasoning if outside else completion,
        cache_read=read,
        cache_write=write,
        reasoning=reasoning,
    )


def _details(raw: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        value = raw.get(name)
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
    return {}


def _first(raw: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = raw.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
            return int(value)
    return None
