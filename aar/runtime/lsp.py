"""Language servers of a session in place: they hear of edits, and what is newly wrong goes to the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from aar.extensions.lsp import LanguageServer, LanguageServers
from aar.protocol.errors import StorageError
from aar.protocol.events import Notice
from aar.protocol.ports import HookVerdict

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.extensions.hooks import HookRunner
    from aar.runtime.base import Base
    from aar.runtime.parts import Runtime

_EDITS = frozenset({"write_file", "edit_file", "apply_patch"})
_PATCHED = re.compile(r"^(?:\*\*\* (?:Update|Add) File: |\+\+\+ (?:b/)?)(.+?)\s*$", re.MULTILINE)


def attach(runtime: Runtime, session: Session, runner: HookRunner) -> None:
    """Let the language servers of the settings hear of edits in ``session``; nothing is started yet."""

    def tell(message: str) -> None:
        with suppress(StorageError):
            session.append(Notice(level="warning", code="lsp", message=message))

    base = runtime.base
    theirs = _of_project(base)
    servers = [
        LanguageServer(name, config, runtime.spawner, runtime.workspace)
        for name, config in base.config.lsp.items()
        if config.enabled and (name not in theirs or runtime.wall() != "none")
    ]
    languages = LanguageServers(servers, runtime.workspace, tell)

    async def before(_event: str, data: Mapping[str, Any]) -> HookVerdict | None:
        if data.get("tool_name") in _EDITS:
            arguments = cast("dict[str, Any]", data.get("arguments") or {})
            named = [str(arguments.get("path") or ""), *_PATCHED.findall(str(arguments.get("patch") or ""))]
            for name in filter(None, named):
                languages.remember((runtime.workspace / name).resolve())
        return None

    async def after(_event: str, data: Mapping[str, Any]) -> HookVerdict | None:
        paths = [
            (runtime.workspace / str(change["path"])).resolve()
            for change in cast("list[dict[str, Any]]", data.get("files") or [])
            if change.get("action") != "delete"
        ]
        reports = await languages.changed(paths)
        return HookVerdict(context=tuple(reports), trusted=False) if reports else None

    runner.listen("before_tool", before)
    runner.listen("file_changed", after)
    session.before_close.append(languages.aclose)


def _of_project(base: Base) -> set[str]:
    """Return the names of servers that the project's config defines."""
    return {
        origin.path[1]
        for origin in base.loaded.origins.values()
        if origin.path[:1] == ("lsp",) and origin.layer == "project"
    }
