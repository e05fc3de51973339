"""Which model answers, and why."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Any

from aar.config.schema import Config
from aar.core.provider_runner import ActiveModel
from aar.providers.base import ProviderCapabilities
from aar.providers.factory import choose_model, make_provider, parse_model
from aar.runtime.base import Base
from aar.runtime.extensions.providers import extension_provider
from aar.runtime.key_command import key_command
from aar.runtime.model_data import describe

_OLLAMA = ("127.0.0.1", 11434)
_OLLAMA_TIMEOUT_S = 0.15


def make_active_model(
    base: Base, base_url: str | None = None, *, name: str | None = None
) -> tuple[ActiveModel, str | None]:
    """Return the model that answers, and why it was chosen where nobody named it.

    Raises:
        ConfigurationError: There is none, or its settings are wrong.
    """
    name, why = name or base.config.model.name, None
    if name is None:
        choice = choose_model(
            base.config,
            os.environ,
            ollama_running=_ollama_runs,
            local_installed=lambda: _local_installed(base),
            ollama_models=_ollama_models,
        )
        name, why = choice.name, choice.why
    vendor, model = parse_model(name)
    provider = extension_provider(base, vendor, model) or make_provider(
        name,
        base.config,
        data_dir=base.paths.data,
        runtime_dir=base.paths.runtime,
        base_url=base_url,
        run_command=key_command(base),
    )
    told = _capabilities(provider.capabilities(model), base.config)
    capabilities, pricing = describe(base, vendor, model, told, base_url)
    return ActiveModel(name, provider, model, capabilities, pricing, base_url), why


def named_for_this_start(base: Base) -> bool:
    """Tell whether a model is named for this start alone, and not only as what the user commonly takes."""
    origin = base.loaded.origins.get("model.name")
    return origin is not None and origin.layer not in ("user", "project")


def choice_notice(active: ActiveModel, why: str) -> str:
    """Return the sentence that tells why a model was chosen that nobody named."""
    return f"Using {active.name}: {why}."


def _capabilities(told: ProviderCapabilities, config: Config) -> ProviderCapabilities:
    """Return what the model can do; ``[model] dialect`` and ``context_window`` win over what is told."""
    changes: dict[str, Any] = {}
    if config.model.dialect != "auto":
        changes["dialect"] = config.model.dialect
    if config.model.context_window is not None:
        changes["context_window"] = config.model.context_window
    return replace(told, **changes) if changes else told


def running_ollama() -> str | None:
    """Return the best model of an Ollama that runs on this machine; ``None``: there is none."""
    from aar.providers.catalog import pick_installed

    return pick_installed(_ollama_models()) if _ollama_runs() else None


def _ollama_runs() -> bool:
    try:
        socket.create_connection(_OLLAMA, _OLLAMA_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _ollama_models() -> list[str]:
    """Return what the running Ollama has; empty when it does not tell within a second."""
    import json
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(*_OLLAMA, timeout=1)
    try:
        connection.request("GET", "/v1/models")
        listed = json.loads(connection.getresponse().read(1_000_000))
        return [str(item["id"]) for item in listed["data"]]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return []
    finally:
        connection.close()


def _local_installed(base: Base) -> bool:
    from aar.providers.local.provider import installed

    return installed(base.config.providers.get("local"), base.paths.data)
