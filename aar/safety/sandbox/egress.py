"""The session's way out: allowed domains, and the proxy, started when the first command may need it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aar.protocol.errors import SandboxError
from aar.protocol.ports import BlockedHost
from aar.safety.sandbox.domains import AllowedDomains
from aar.safety.spawn_link import SpawnServer

if TYPE_CHECKING:
    from aar.safety.sandbox.proxy import DomainProxy


class Egress:
    """Keeps one proxy for each life of the spawn server.

    Args:
        server: Makes the private network.
        rules: ``[sandbox] allow_domains``.
        never: Hosts out of reach whatever the rules say.
    """

    def __init__(self, server: SpawnServer, rules: Iterable[str], never: Iterable[str]) -> None:
        self.domains = AllowedDomains(rules, never)
        """The rules in force; `AllowedDomains.add` widens them at once."""
        self._server = server
        self._proxy: DomainProxy | None = None
        self._generation = 0
        self._variables: dict[str, str] = {}

    def variables(self) -> dict[str, str]:
        """Return the environment that leads to the proxy, which runs from now on.

        Empty where the network was not to be had: then nothing is reachable at all.
        """
        if self._generation != self._server.generation or self._proxy is None:
            self.close()
            self._start()
        return self._variables

    def blocked_since(self, moment: float) -> tuple[BlockedHost, ...]:
        """Return what was refused after ``moment`` (monotonic seconds)."""
        return self._proxy.blocked_since(moment) if self._proxy is not None else ()

    def close(self) -> None:
        """End the proxy. The next command starts another."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        self._variables = {}

    def _start(self) -> None:
        from aar.safety.sandbox.proxy import DomainProxy, proxy_variables

        try:
            listener = self._server.listener()
        except SandboxError:
            return
        self._generation = self._server.generation
        self._variables = proxy_variables(listener.getsockname()[1])
        self._proxy = DomainProxy(self.domains)
        self._proxy.start(listener)
