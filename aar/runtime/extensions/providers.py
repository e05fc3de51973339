"""Providers that extensions bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aar.protocol.errors import ConfigurationError
from aar.runtime.base import log_failure
from aar.runtime.extensions.loading import manager_of

if TYPE_CHECKING:
    from aar.providers.base import Provider
    from aar.runtime.base import Base


def extension_provider(base: Base, name: str, model: str) -> Provider | None:
    """Return the provider of an extension; ``None`` where no extension has one of that name.

    Raises:
        ConfigurationError: The extension cannot make it.
    """
    from aar.providers.presets import PRESETS

    if name in PRESETS or name in base.config.providers or not base.config.extensions.enabled:
        return None
    manager = manager_of(base)
    manager.wait()
    found = manager.provider(name)
    if found is None:
        return None
    from aar.extensions.replaced import GuardedProvider
    from aar.providers.base import Provider

    extension, factory = found
    settings = dict(extension.api.settings)
    try:
        made = extension.worker.call_now(
            factory, model, settings, seconds=base.config.extensions.load_seconds
        )
    except Exception as error:
        log_failure(f"the provider {name} could not be made", error)
        whose = f"The provider {name} of the extension {extension.name}"
        raise ConfigurationError(f"{whose} failed: {error}") from error
    if not isinstance(made, Provider):
        whose = f"The provider {name} of the extension {extension.name}"
        raise ConfigurationError(f"{whose} is no aar.providers.base.Provider; tell its author.")
    return GuardedProvider(name, made, extension.name)
