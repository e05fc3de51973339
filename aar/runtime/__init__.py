"""The one place where the parts are put together: configuration in, `Runtime` out.

Names are loaded when they are first used: a command that needs only the settings does not pay for the agent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aar.runtime.base import Base, log_failure, open_base, start_log
    from aar.runtime.conversation import Conversation
    from aar.runtime.history import tell_history
    from aar.runtime.models import make_active_model
    from aar.runtime.opening import open_runtime
    from aar.runtime.parts import Runtime
    from aar.runtime.policy import make_policy

_HOMES = {
    "Base": "base",
    "Conversation": "conversation",
    "Runtime": "parts",
    "log_failure": "base",
    "make_active_model": "models",
    "make_policy": "policy",
    "open_base": "base",
    "open_runtime": "opening",
    "start_log": "base",
    "tell_history": "history",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


__all__ = [
    "Base",
    "Conversation",
    "Runtime",
    "log_failure",
    "make_active_model",
    "make_policy",
    "open_base",
    "open_runtime",
    "start_log",
    "tell_history",
]
