"""What stands between an agent and its servers: fallback models, shared breakers and limits."""

from __future__ import annotations

from threading import Lock

from aar.config.schema import ProviderConfig
from aar.core.active_model import ActiveModel
from aar.core.approvals import PermissionManager
from aar.core.fallback import FallbackChain, consent_by
from aar.core.provider_runner import ProviderRunner, Trace
from aar.core.server_guards import ServerGuards
from aar.runtime.base import Base
from aar.runtime.models import make_active_model

GUARDS = ServerGuards()
"""One for the process: all agents of all sessions share what is known of a server."""


class OpenedModels:
    """The models that were opened to go on for another, each once, for all agents of a runtime.

    Args:
        base: Settings.
    """

    def __init__(self, base: Base) -> None:
        self._base = base
        self._lock = Lock()
        self._models: dict[str, ActiveModel] = {}

    def open(self, name: str) -> ActiveModel:
        """Return the model ``name``, ready to be asked; may run in any thread.

        Raises:
            ConfigurationError: There is no such provider, or its settings are wrong.
        """
        with self._lock:
            if name not in self._models:
                self._models[name], _ = make_active_model(self._base, name=name)
                set_limits(self._base, self._models[name])
            return self._models[name]

    async def aclose(self) -> None:
        """Close their connections and processes."""
        opened, self._models = self._models, {}
        for active in opened.values():
            await active.provider.aclose()


def make_runner(
    base: Base,
    active: ActiveModel,
    opened: OpenedModels,
    approver: PermissionManager | None,
    trace: Trace | None,
) -> ProviderRunner:
    """Return what asks ``active``, and those that may go on for it.

    Args:
        base: Settings.
        active: The first model.
        opened: Makes the others.
        approver: Answers whether a remote model may be asked; ``None``: nobody is there.
        trace: Gets requests and answers as text.
    """
    model = base.config.model
    set_limits(base, active)
    fallback = None
    if model.fallback:
        fallback = FallbackChain(
            model.fallback,
            opened.open,
            consent=None if approver is None else consent_by(approver),
            allow_remote=model.fallback_remote == "allow",
        )
    return ProviderRunner(active, model, trace=trace, guards=GUARDS, fallback=fallback)


def set_limits(base: Base, active: ActiveModel) -> None:
    """Put the limits that the user set for the server of ``active`` in place, where there are some."""
    settings = base.config.providers.get(active.provider.name, _NONE)
    if settings.requests_per_minute is not None or settings.tokens_per_minute is not None:
        GUARDS.set_limits(active, settings.requests_per_minute, settings.tokens_per_minute)


_NONE = ProviderConfig()
