"""aar: a terminal coding assistant. The public API, imported when first used.

    from aar import Agent, open_runtime

Everything named in ``__all__`` is stable; the events are in ``aar.protocol.events`` as well.
"""

from __future__ import annotations

# Not from typing, whose import alone takes longer than `aar --version`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Agent": "aar.core.agent",
    "AgentConfig": "aar.core.agent",
    "Conversation": "aar.runtime",
    "ExtensionAPI": "aar.extensions.api",
    "LoopGuardrails": "aar.core.guardrails",
    "Message": "aar.protocol.messages",
    "PermissionManager": "aar.core.approvals",
    "Runtime": "aar.runtime",
    "SafetyPolicy": "aar.safety.policy",
    "Session": "aar.core.session",
    "SessionStore": "aar.memory.session_store",
    "SideEffect": "aar.protocol.tool",
    "TextBlock": "aar.protocol.messages",
    "ToolExecutor": "aar.tools.executor",
    "ToolOutcome": "aar.protocol.tool",
    "ToolRegistry": "aar.tools.registry",
    "ToolSpec": "aar.protocol.tool",
    "events": "aar.protocol.events",
    "open_runtime": "aar.runtime",
    "session_metrics": "aar.observability.metrics",
    "tell_history": "aar.runtime",
}

__all__ = [*_HOMES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'aar' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(home)
    return module if name == "events" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
