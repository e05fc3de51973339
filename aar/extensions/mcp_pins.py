"""Pins: what of each MCP server the user has accepted, by hash (SECURITY T20).

A server that changes its command, or a tool that changes its description or schema after it was accepted, is
not what the user agreed to. The first state that is seen is taken; every later one needs a yes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from aar.config.files import write_atomic
from aar.config.paths import ensure
from aar.extensions.mcp_config import ServerSpec
from aar.protocol.errors import StorageError


def tool_hash(tool: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all of a tool that a model reads or policy uses; hex."""
    parts = {key: tool.get(key) for key in ("name", "description", "inputSchema", "annotations")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class PinStore:
    """Accepted servers and tools, in ``<data>/mcp_pins.json`` (0600), out of reach of any project.

    Args:
        file: Where they are kept.
        workspace: Root of the project; its own servers have pins of their own.
    """

    def __init__(self, file: Path, workspace: Path) -> None:
        self._file = file
        self._workspace = str(workspace)

    def _key(self, spec: ServerSpec) -> str:
        return f"{self._workspace if spec.scope == 'project' else 'user'}:{spec.name}"

    def command_changed(self, spec: ServerSpec) -> bool:
        """Tell whether the server was accepted with another command or address."""
        pinned = self._read().get(self._key(spec), {}).get("command")
        return pinned is not None and pinned != spec.fingerprint()

    def changed_tools(self, spec: ServerSpec, tools: Iterable[Mapping[str, Any]]) -> set[str]:
        """Return the names of tools that are new or other than accepted; takes all of a new server."""
        entry = self._read().get(self._key(spec), {})
        now = {str(tool.get("name")): tool_hash(tool) for tool in tools}
        pinned = entry.get("tools")
        if not isinstance(pinned, dict):
            self._record(spec, now)
            return set()
        known = cast("dict[str, Any]", pinned)
        return {name for name, digest in now.items() if known.get(name) != digest}

    def accept(self, spec: ServerSpec, tools: Iterable[Mapping[str, Any]] = ()) -> None:
        """Accept the command as it is, and ``tools`` as they are."""
        self._record(spec, {str(tool.get("name")): tool_hash(tool) for tool in tools})

    def forget(self, spec: ServerSpec) -> None:
        """Forget all of a server, so that its next state is taken as the first."""
        with self._changing() as servers:
            servers.pop(self._key(spec), None)

    def _record(self, spec: ServerSpec, tools: Mapping[str, str]) -> None:
        with self._changing() as servers:
            entry = servers.setdefault(self._key(spec), {})
            entry["command"] = spec.fingerprint()
            if tools:
                entry["tools"] = {**entry.get("tools", {}), **tools}

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            found = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise StorageError(
                f"{self._file} cannot be read ({error}); it holds which MCP servers you accepted. Remove it "
                "to accept them anew."
            ) from error
        servers = cast("dict[str, Any]", found).get("servers") if isinstance(found, dict) else None
        entries = cast("dict[str, Any]", servers).items() if isinstance(servers, dict) else ()
        return {key: cast("dict[str, Any]", entry) for key, entry in entries if isinstance(entry, dict)}

    @contextmanager
    def _changing(self) -> Generator[dict[str, dict[str, Any]]]:
        try:
            ensure(self._file.parent)
            lock = os.open(self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                servers = self._read()
                yield servers
                write_atomic(self._file, json.dumps({"version": 1, "servers": servers}, indent=1).encode())
            finally:
                os.close(lock)
        except OSError as error:
            raise StorageError(
                f"{self._file} cannot be written ({error.strerror}); free or unlock it."
            ) from error
