"""The embedded model, held by a worker process that outlives a run.

The worker imports only what it needs, so the package itself imports nothing before it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aar.providers.local.provider import LocalProvider

__all__ = ["LocalProvider"]


def __getattr__(name: str) -> Any:
    """Return the provider's class, imported now."""
    if name == "LocalProvider":
        from aar.providers.local.provider import LocalProvider

        return LocalProvider
    raise AttributeError(name)
