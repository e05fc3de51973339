"""What a session needs that takes time: runtimes, the store. Imported in a thread after ``initialize``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aar.commands.registry import Registry
from aar.config.paths import ensure, paths, project_root
from aar.memory.session_store import SessionStore
from aar.protocol.errors import StorageError
from aar.runtime import Runtime, open_runtime
from aar.transports.acp import session as _session

assert _session  # loaded here, ahead of the first session


def warm() -> None:
    """Load the rest of what the first session needs."""
    from aar.observability import diagnostics_log
    from aar.orchestration import task_tools

    assert diagnostics_log
    assert task_tools
    Registry()


def make_runtime(
    options: Mapping[str, Any],
    folder: Path,
    more: Sequence[Path],
    servers: Mapping[str, Any],
    *,
    bounded: bool = False,
) -> Runtime:
    """Put the parts together for a folder.

    Args:
        options: For `open_runtime`.
        folder: The working folder.
        more: Folders that may be changed besides.
        servers: The editor's MCP servers.
        bounded: Whether the client may take no looser mode than that of the start, and save no rules.

    Raises:
        AarError: A setting or key is wrong.
    """
    runtime = _make(options, folder, more, servers)
    if bounded:
        base = runtime.base
        loaded = replace(base.loaded, mode_ceiling=runtime.mode)
        runtime.base = replace(base, loaded=loaded, scopes=("once", "session"))
    return runtime


def _make(
    options: Mapping[str, Any], folder: Path, more: Sequence[Path], servers: Mapping[str, Any]
) -> Runtime:
    given: dict[str, Any] = {**options, "cwd": folder, "add_dirs": (*options.get("add_dirs", ()), *more)}
    if not servers:
        return open_runtime(interactive=True, **given)
    # A file, as `--mcp-config` takes it; read while the runtime lives, and for this user alone.
    own = paths().runtime
    ensure(own)
    descriptor, name = tempfile.mkstemp(prefix="editor-", suffix=".json", dir=own)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"mcpServers": dict(servers)}, file)
    given["mcp_configs"] = (*options.get("mcp_configs", ()), Path(name))
    try:
        return open_runtime(interactive=True, **given)
    finally:
        Path(name).unlink(missing_ok=True)


def session_store() -> SessionStore:
    """Return the store of sessions on disk."""
    return SessionStore(paths().sessions)


def stored_sessions(folder: Path | None, open_ids: frozenset[str]) -> list[dict[str, Any]]:
    """Return stored sessions as ``session/list`` tells them, last written first.

    Those in which nothing was said yet are left out, unless they are open.

    Args:
        folder: Only those of the project that it belongs to.
        open_ids: Sessions that are open here.
    """
    infos = session_store().list(None if folder is None else project_root(folder))
    return [
        {
            "sessionId": info.id,
            "cwd": info.cwd,
            **({"title": info.title} if info.title else {}),
            **({"updatedAt": info.updated} if info.updated else {}),
        }
        for info in infos
        if info.cwd.startswith("/") and (info.title or info.id in open_ids)
    ]


def delete_session(session_id: str) -> None:
    """Remove a stored session; one that is not there is gone already.

    Raises:
        StorageError: It is open in another process, or the disk refuses.
    """
    store = session_store()
    try:
        if not store.exists(session_id):
            return
    except StorageError:
        return
    store.delete(session_id)
