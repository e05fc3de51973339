"""A model that can be asked: its name, who speaks to its server, and what it can do."""

from __future__ import annotations

from dataclasses import dataclass

from aar.providers.base import Provider, ProviderCapabilities
from aar.providers.http import is_loopback_address

_ON_THIS_MACHINE = frozenset({"local", "scripted"})


@dataclass(frozen=True, slots=True)
class ActiveModel:
    """A model that can be asked.

    Attributes:
        name: ``provider/model``.
        provider: Who speaks to the server.
        model: The name on the wire.
        capabilities: What it can do.
    """

    name: str
    provider: Provider
    model: str
    capabilities: ProviderCapabilities

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
