"""What an Ollama tells of a model (``POST /api/show``): its longest context and what it can do."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from aar.providers.base import ProviderCapabilities

if TYPE_CHECKING:
    from aar.config.schema import Config

SHOW_TIMEOUT_S = 2.0
"""Seconds for the question; without an answer aar goes by the model's name."""

GLANCE_S = 0.15
"""Seconds that a start waits for an Ollama of this machine, which answers in some ten milliseconds."""

_LARGEST = 16_000_000


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known about one model.

    Attributes:
        context_length: Tokens that it was made for; ``None``: not told.
        abilities: ``completion``, ``tools``, ``vision``, ``thinking`` …; ``None``: not told.
        own_num_ctx: ``num_ctx`` of its Modelfile.
    """

    context_length: int | None = None
    abilities: frozenset[str] | None = None
    own_num_ctx: int | None = None


UNKNOWN = ModelFacts()
"""Nothing was told."""


def read_facts(told: Any) -> ModelFacts:
    """Return what an answer of ``/api/show`` tells; parts that are missing or odd are skipped."""
    if not isinstance(told, dict):
        return UNKNOWN
    fields = cast("dict[str, Any]", told)
    info = fields.get("model_info")
    listed = fields.get("capabilities")
    abilities = None
    if isinstance(listed, list) and listed:
        abilities = frozenset(name for name in cast("list[Any]", listed) if isinstance(name, str))
    own = re.search(r"^num_ctx\s+(\d{1,9})\s*$", str(fields.get("parameters") or ""), re.MULTILINE)
    return ModelFacts(
        context_length=_context_length(cast("dict[str, Any]", info)) if isinstance(info, dict) else None,
        abilities=abilities,
        own_num_ctx=int(own.group(1)) if own and int(own.group(1)) > 0 else None,
    )


def _context_length(info: Mapping[str, Any]) -> int | None:
    own = info.get("general.architecture")
    lengths = {
        name: value
        for name, value in info.items()
        if name.endswith(".context_length") and isinstance(value, int) and 0 < value < _LARGEST
    }
    return lengths.get(f"{own}.context_length") or max(lengths.values(), default=None)


def describe(
    by_name: ProviderCapabilities, facts: ModelFacts, config: Config | None, provider: str
) -> ProviderCapabilities:
    """Return ``by_name``, what the model's name tells, corrected by what its server tells.

    What the user has set stays as it is.
    """
    changes: dict[str, Any] = {}
    if facts.context_length is not None and configured_window(config, provider) is None:
        changes["context_window"] = facts.context_length
    if facts.abilities is not None:
        changes["images"] = "vision" in facts.abilities
        changes["text_only"] = "vision" not in facts.abilities
        changes["reasoning"] = "thinking" in facts.abilities
        asked = config is not None and config.model.dialect != "auto"
        if "tools" not in facts.abilities and by_name.dialect == "native" and not asked:
            changes.update(dialect="text", tools=False, compact_prompt=True)
        elif "tools" in facts.abilities and by_name.dialect == "text" and not asked:
            changes.update(dialect="native", tools=True, compact_prompt=False)
    return replace(by_name, **changes) if changes else by_name


def configured_window(config: Config | None, provider: str) -> int | None:
    """Return the context that the user allots: ``[model] context_window``, else the provider's."""
    if config is None:
        return None
    settings = config.providers.get(provider)
    return config.model.context_window or (settings.context_window if settings is not None else None)


class FactsThread:
    """Asks for the facts of one model in the background, as at a start the event loop does not run yet.

    Args:
        host: Name or address of this machine.
        port: Port on it.
        model: Which model.
        path: Of ``/api/show``, with what the base address has before it.
    """

    def __init__(self, host: str, port: int, model: str, path: str) -> None:
        self._place = (host, port, path, model)
        self.facts: ModelFacts | None = None
        self._thread = threading.Thread(target=self._ask, name="ollama-show", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> ModelFacts | None:
        """Wait shortly, and return the facts if they have come."""
        self._thread.join(seconds)
        return self.facts

    def _ask(self) -> None:
        # The standard library's client is loaded in a tenth of the time of the other one.
        from http.client import HTTPConnection, HTTPException

        host, port, path, model = self._place
        connection = HTTPConnection(host, port, timeout=SHOW_TIMEOUT_S)
        try:
            body = json.dumps({"model": model})
            connection.request("POST", path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            if response.status == 200:
                self.facts = read_facts(json.loads(response.read(50_000_000)))
        except (OSError, HTTPException, ValueError):
            return
        finally:
            connection.close()
