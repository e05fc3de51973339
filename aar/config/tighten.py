"""What a project may not set, and in which direction a setting gets stricter.

A project's config comes with somebody else's repository. Even after trust it may not say where keys go,
nor loosen what the user allowed (DESIGN 7). ``managed.toml`` may only make things stricter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

from pydantic import BaseModel

from aar.config.schema import Config, PermissionMode
from aar.config.toml_lines import KeyPath, join_key
from aar.config.validate import Layer, lookup, store

MODES: tuple[PermissionMode, ...] = ("plan", "ask", "edit", "auto", "unsafe")
"""Permission modes, strictest first."""

_WALLS = ("none", "landlock", "auto", "seatbelt", "namespaces", "bubblewrap")

UNIONS = frozenset(
    {
        ("permissions", "allow"),
        ("permissions", "ask"),
        ("permissions", "deny"),
        ("sandbox", "protected"),
        ("sandbox", "secrets"),
        ("extensions", "disabled"),
    }
)
"""Lists that grow from layer to layer; all others are replaced."""

Meet = Callable[[Any, Any], Any]
"""``meet(base, new)``: the stricter of the two."""


def _least(base: Any, new: Any) -> Any:
    return new if base is None else min(base, new)


def _greatest(base: Any, new: Any) -> Any:
    return new if base is None else max(base, new)


def _least_nonzero(base: Any, new: Any) -> Any:
    """Zero means: no limit."""
    return min(value for value in (base, new) if value) if base or new else 0


def _both(base: Any, new: Any) -> Any:
    return [item for item in new if base is None or item in base]


def _either(base: Any, new: Any) -> Any:
    return list(dict.fromkeys([*(base or ()), *new]))


def _and(base: Any, new: Any) -> Any:
    return new and base is not False


def _mode(base: Any, new: Any) -> Any:
    """Without a mode the door decides; ``ask`` is the strictest that any of them chooses."""
    return min(base or "ask", new, key=MODES.index)


def _wall(base: Any, new: Any) -> Any:
    return max(base or "auto", new, key=_WALLS.index)


def _asking(base: Any, new: Any) -> Any:
    return "ask" if "ask" in (base, new) else new


def _writing(base: Any, new: Any) -> Any:
    return min(base or "ask", new, key=("off", "ask", "auto").index)


_STRICTER: dict[str, Meet] = {
    "model.fallback_remote": _asking,
    "limits.steps": _least,
    "limits.tool_calls_per_step": _least,
    "limits.*": _least_nonzero,
    "budget.*_usd": _least_nonzero,
    "budget.warn_at": _least,
    "guardrails.max_*": _least,
    "guardrails.reserve_*": _greatest,
    "permissions.mode": _mode,
    "permissions.ask": _either,
    "permissions.deny": _either,
    "sandbox.mode": _wall,
    "sandbox.allow_domains": _both,
    "sandbox.readable": _both,
    "sandbox.writable": _both,
    "sandbox.protected": _either,
    "sandbox.secrets": _either,
    "sandbox.memory_mb": _least_nonzero,
    "sandbox.processes": _least_nonzero,
    "sandbox.cpu_seconds": _least_nonzero,
    "sandbox.file_mb": _least_nonzero,
    "sandbox.shared_caches": _and,
    "tools.enabled": _both,
    "mcp.servers.*.enabled": _and,
    "extensions.enabled": _and,
    "extensions.use": _both,
    "extensions.disabled": _either,
    "memory.write": _writing,
    "log.trace": _both,
}

_ADDRESS = "a project may not say where requests go or what they carry"
_REFUSED: dict[str, str] = {
    "providers.*.base_url": _ADDRESS,
    "providers.*.api_key_env": "a project may not choose keys",
    "providers.*.api_key_command": "a project may not choose keys",
    "providers.*.headers*": _ADDRESS,
    "providers.*.extra*": _ADDRESS,
    "providers.*.models*": "a project may not say what models cost",
    "providers.*.model_path": "a project may not choose files outside of it",
    "permissions.allow": "a project may not allow anything",
    "sandbox.allow_domains": "a project may not open the sandbox",
    "sandbox.readable": "a project may not open the sandbox",
    "sandbox.writable": "a project may not open the sandbox",
    "mcp.servers.*.sandbox": "a project may not open the sandbox",
    "mcp.servers.*.network": "a project may not open the sandbox",
    "lsp.*.sandbox": "a project may not open the sandbox",
    "lsp.*.network": "a project may not open the sandbox",
    "web.*": _ADDRESS,
    "rest.*": _ADDRESS,
    "session.*": "sessions are the user's",
    "extensions.use": "a project may not choose extensions",
    "extensions.*seconds": "extensions are the user's",
    "extensions.settings*": "extensions are the user's",
    "log.*": "logs are the user's",
    "tui.*": "the screen and its keys are the user's",
    "plan.worktrees": "agents in work trees ask nobody; a project may not let them",
    "memory.embeddings": "a project may not choose where notes are sent",
    "voice.*": "commands for the voice are the user's",
    "profiles*": "profiles are the user's",
    "trust*": "a project may not trust itself",
}
_NAMED: tuple[KeyPath, ...] = (("mcp", "servers"), ("agents",), ("lsp",))
_LOOSER = "a project may not loosen it"
_NOT_OURS = "a project may not change what the user has under that name"
_NOT_STRICTER = "managed settings can only tighten"


def project_part(layer: Layer, base: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return what of a project's layer counts over ``base``, and one sentence for each refused key."""
    kept: dict[str, Any] = {}
    notices: list[str] = []
    for path, value in leaves(layer.values):
        reason = _refusal(path, base)
        stricter = value
        if reason is None and (meet := _meet(path)) is not None and path not in UNIONS:
            stricter = meet(_current(base, path), value)
            reason = _LOOSER if stricter != value else None
        if reason is None:
            store(kept, path, value)
        else:
            notices.append(f"{layer.where(path)}: {join_key(path)} is ignored; {reason}.")
    return kept, notices


def managed_part(layer: Layer, base: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values by which a managed layer tightens ``base``, and a sentence for each other key."""
    kept: dict[str, Any] = {}
    notices: list[str] = []
    for path, value in leaves(layer.values):
        meet = _meet(path)
        if meet is None:
            notices.append(f"{layer.where(path)}: {join_key(path)} is ignored; {_NOT_STRICTER}.")
            continue
        current = _current(base, path)
        if path == ("permissions", "mode") and current is None and value in ("auto", "unsafe"):
            continue  # every door's own choice is within it
        stricter = meet(current, value)
        if stricter != current:
            store(kept, path, stricter)
    return kept, notices


def stricter_mode(one: PermissionMode, other: PermissionMode | None) -> PermissionMode:
    """Return the stricter of two modes; ``None`` is no bound."""
    return one if other is None or MODES.index(one) <= MODES.index(other) else other


def leaves(values: Mapping[str, Any], prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield each value that is not a table, with its path; empty tables too."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(cast("dict[str, Any]", value), (*prefix, key))
        else:
            yield (*prefix, key), value


def _match(table: Mapping[str, Any], path: KeyPath) -> Any:
    name = ".".join(path)
    return next((value for pattern, value in table.items() if fnmatchcase(name, pattern)), None)


def _meet(path: KeyPath) -> Meet | None:
    found: Meet | None = _match(_STRICTER, path)
    return found


def _refusal(path: KeyPath, base: Mapping[str, Any]) -> str | None:
    for named in _NAMED:
        if path[: len(named)] == named and lookup(base, path[: len(named) + 1]) is not None:
            return _NOT_OURS
    if path[0] == "hooks" and not isinstance(lookup(base, path) or [], list):
        return _NOT_OURS
    found: str | None = _match(_REFUSED, path)
    return found


def _current(base: Mapping[str, Any], path: KeyPath) -> Any:
    """Return the value that holds now: set by a layer, or built in."""
    value = lookup(base, path)
    if value is not None:
        return value
    value = Config.model_construct()
    for key in path:
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get(key)
        else:
            value = getattr(value, key, None) if isinstance(value, BaseModel) else None
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
