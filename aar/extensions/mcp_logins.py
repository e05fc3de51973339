"""What OAuth gave for each MCP server: in the key store, never in a config or session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import SecretStr

from aar.protocol.errors import McpError
from aar.providers.key_store import KeyStore

_PREFIX = "mcp:"


class SignInNeededError(McpError):
    """The server lets nobody in who is not signed in."""

    def __init__(self, name: str) -> None:
        super().__init__(f"It wants you to sign in: `aar mcp login {name}`.")


class LoginStore:
    """What signing in gave, for each server and address.

    Args:
        folder: ``<config>``, where the key store is.
    """

    def __init__(self, folder: Path) -> None:
        self._keys = KeyStore(folder)

    def known(self, name: str, url: str) -> bool:
        """Tell whether there is a login for exactly this server, without asking the keyring.

        Raises:
            ConfigurationError: The key store cannot be read.
        """
        return any(
            (entry.provider, entry.host) == (_PREFIX + name, _host(url)) for entry in self._keys.entries()
        )

    def load(self, name: str, url: str) -> dict[str, Any] | None:
        """Return what is kept for a server; ``None``: nothing, or it is for another address on that host.

        Raises:
            ConfigurationError: The key store or the keyring cannot be read.
        """
        found = self._keys.get(_PREFIX + name, _host(url))
        if found is None:
            return None
        try:
            record = json.loads(found.get_secret_value())
        except ValueError:
            return None
        if not isinstance(record, dict):
            return None
        login = cast("dict[str, Any]", record)
        return login if login.get("url") == url else None

    def save(self, name: str, url: str, record: dict[str, Any]) -> None:
        """Keep ``record`` in place of an earlier one.

        Raises:
            StorageError: It cannot be written.
        """
        text = json.dumps({**record, "url": url}, separators=(",", ":"))
        self._keys.set(_PREFIX + name, _host(url), SecretStr(text))

    def forget(self, name: str) -> bool:
        """Forget all logins of a server; tell whether there was one.

        Raises:
            StorageError: The key store cannot be written.
        """
        return bool(self._keys.remove(_PREFIX + name))


def _host(url: str) -> str:
    """Return host and port, without what may stand before them."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()
