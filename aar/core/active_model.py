"""A model that can be asked: its name, who speaks to its server, and what it can do."""

from __future__ import annotations

import os
from dataclasses import dataclass

from aar.core.pricing import Pricing
from aar.protocol.usage import Price
from aar.providers.base import Provider, ProviderCapabilities
from aar.providers.http.client import is_loopback_address

_ON_THIS_MACHINE = frozenset({"local", "scripted"})


def keepable(base_url: str | None) -> str | None:
    """Return an address without what looks like a key or is a secret of this start, as a session keeps it."""
    if base_url is None:
        return None
    from aar.safety.environment import secret_values
    from aar.safety.redact import Redactor

    return Redactor(secret_values(os.environ)).redact(base_url)


@dataclass(frozen=True, slots=True)
class ActiveModel:
    """A model that can be asked.

    Attributes:
        name: ``provider/model``.
        provider: Who speaks to the server.
        model: The name on the wire.
        capabilities: What it can do.
        pricing: Looks its price up, where ``capabilities`` do not tell it.
        base_url: Address that was named for it beside the settings.
    """

    name: str
    provider: Provider
    model: str
    capabilities: ProviderCapabilities
    pricing: Pricing | None = None
    base_url: str | None = None

    async def price(self) -> Price | None:
        """Return the price; ``None``: not known. Waits where it is being looked up."""
        known = self.capabilities.price
        return await self.pricing.price() if known is None and self.pricing is not None else known

    @property
    def kept_address(self) -> str | None:
        """``base_url`` as a session keeps it."""
        return keepable(self.base_url)

    @property
    def server(self) -> str:
        """Host and port that are asked; empty where nothing is sent to a server."""
        return self.provider.server

    @property
    def remote(self) -> bool:
        """Whether a conversation with it leaves this machine; when in doubt it does."""
        if self.server:
            return not is_loopback_address(self.server)
        return self.provider.name not in _ON_THIS_MACHINE
