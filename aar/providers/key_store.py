"""Keys that the user gave to ``aar auth set``, each for one provider and one host.

The system's keyring is used where there is one (extra ``keyring``), else ``<config>/keys.json``, readable by
the user alone. That file also tells which keys the keyring has, so that a run asks only for those.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import SecretStr

from aar.protocol.errors import ConfigurationError, StorageError

Where = Literal["keyring", "file"]
_SERVICE = "aar"
_PATIENCE_S = 30.0
"""Seconds that a keyring may take: it may ask the user to unlock it."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """That there is a key; not the key itself."""

    provider: str
    host: str
    where: Where


class KeyStore:
    """The keys of one user.

    Args:
        folder: ``<config>``.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "keys.json"

    def entries(self) -> list[StoredKey]:
        """Return which keys there are.

        Raises:
            ConfigurationError: The file cannot be read.
        """
        return [_entry(item) for item in self._read()]

    def get(self, provider: str, host: str) -> SecretStr | None:
        """Return the key for exactly this provider and host; ``None``: there is none.

        Raises:
            ConfigurationError: The file or the keyring cannot be read.
        """
        for item in self._read():
            entry = _entry(item)
            if (entry.provider, entry.host) == (provider, host.lower()):
                found = item.get("key") if entry.where == "file" else _from_keyring(entry)
                return SecretStr(str(found)) if found else None
        return None

    def set(self, provider: str, host: str, key: SecretStr) -> Where:
        """Keep a key in place of an earlier one, and return where it is kept.

        Raises:
            StorageError: It cannot be written.
        """
        host = host.lower()
        where: Where = "keyring" if _to_keyring(provider, host, key) else "file"
        entry = {"provider": provider, "host": host, "where": where}
        if where == "file":
            entry["key"] = key.get_secret_value()
        with self._changing():
            self._write([*(item for item in self._read() if not _is(item, provider, host)), entry])
        return where

    def remove(self, provider: str, host: str | None = None) -> list[StoredKey]:
        """Forget the provider's keys, or the one for ``host``; return those that were there.

        Raises:
            StorageError: The file cannot be written.
        """
        with self._changing():
            read = self._read()
            gone = [item for item in read if _is(item, provider, host.lower() if host else None)]
            if gone:
                self._write([item for item in read if item not in gone])
        for item in gone:
            if item["where"] == "keyring":
                _forget_in_keyring(_entry(item))
        return [_entry(item) for item in gone]

    @contextmanager
    def _changing(self) -> Generator[None]:
        """Keep others from changing the file meanwhile: tokens are renewed by several processes at once."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _read(self) -> list[dict[str, Any]]:
        try:
            whole = json.loads(self._path.read_bytes())
            items = cast("list[dict[str, Any]]", whole["keys"])
            for item in items:
                _entry(item)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigurationError(f"{self._path} cannot be read: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError):
            # Without the cause: its words may hold a part of the file.
            raise ConfigurationError(
                f"{self._path} is damaged. Move it away, and give your keys again with `aar auth set`."
            ) from None
        return items

    def _write(self, items: list[dict[str, Any]]) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump({"version": 1, "keys": items}, stream, indent=1)
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.replace(self._path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error.strerror}.") from error


def _entry(item: dict[str, Any]) -> StoredKey:
    return StoredKey(str(item["provider"]), str(item["host"]), item["where"])


def _is(item: dict[str, Any], provider: str, host: str | None) -> bool:
    return item["provider"] == provider and (host is None or item["host"] == host)


def _name(entry: StoredKey) -> str:
    return f"{entry.provider}@{entry.host}"


def _from_keyring(entry: StoredKey) -> str | None:
    def get(keyring: Any) -> str | None:
        return keyring.get_password(_SERVICE, _name(entry))

    found, problem = _with_keyring(get)
    if problem:
        raise ConfigurationError(
            f"The keyring does not give the key of {entry.provider} for {entry.host}: {problem}. "
            f"Unlock it, or give the key again with `aar auth set {entry.provider}`."
        )
    return found


def _to_keyring(provider: str, host: str, key: SecretStr) -> bool:
    """Put the key into the system's keyring; ``False``: there is none that keeps it."""
    name = _name(StoredKey(provider, host, "keyring"))

    def put(keyring: Any) -> bool:
        keyring.set_password(_SERVICE, name, key.get_secret_value())
        return keyring.get_password(_SERVICE, name) == key.get_secret_value()

    kept, problem = _with_keyring(put)
    return bool(kept) and not problem


def _forget_in_keyring(entry: StoredKey) -> None:
    def forget(keyring: Any) -> None:
        keyring.delete_password(_SERVICE, _name(entry))

    _with_keyring(forget)


def _with_keyring(use: Callable[[Any], Any]) -> tuple[Any, str]:
    """Return what ``use`` returns, and why it failed; never longer than the keyring may take."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None, "the package keyring is not installed"
    outcome: list[tuple[Any, str]] = []

    def work() -> None:
        try:
            outcome.append((use(keyring), ""))
        except KeyringError as error:
            outcome.append((None, type(error).__name__))
        except Exception as error:  # backends raise whatever their system does
            outcome.append((None, type(error).__name__))

    thread = threading.Thread(target=work, name="aar-keyring", daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    return outcome[0] if outcome else (None, f"no answer within {_PATIENCE_S:.0f} s")
