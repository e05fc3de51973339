"""Hooks of a session in place: who hears of what, commands after edits, rules of folders entered."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aar.config.rules_files import folder_rules
from aar.extensions.hooks import HookRunner, Listener
from aar.extensions.hooks_config import AfterEdit, Hook, from_claude, from_config
from aar.protocol.errors import AarError, StorageError
from aar.protocol.events import (
    ApprovalRequest,
    ErrorEvent,
    Event,
    Notice,
    PlanEvent,
    StateEvent,
)
from aar.protocol.ports import HookVerdict, SpawnRequest
from aar.protocol.state import AgentState
from aar.protocol.text import clean_text

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.runtime.base import Base
    from aar.runtime.parts import Runtime

_ENTERING = frozenset({"read_file", "edit_file", "write_file", "list_directory", "grep"})
_MAX_REPORT = 4000
_NOT_FOUND = 127
"""Exit code of a shell for a program that does not exist."""
_SEEN = ("compaction", "error", "plan_changed", "plan_step_done", "notification")


def load_hooks(base: Base) -> tuple[list[Hook], list[AfterEdit], list[str]]:
    """Return all hooks of user and project, and sentences about what is not understood.

    Raises:
        ConfigurationError: A hook in a config file is wrong.
    """
    table = base.config.hooks
    hooks, edits, notices = from_config(table, _project_table(base) if base.trusted else {})
    if table.get("claude", True) is False:
        return hooks, edits, notices
    files: list[tuple[Path, Path | None]] = [(Path.home() / ".claude/settings.json", None)]
    if base.trusted:
        names = ("settings.json", "settings.local.json")
        files += [(base.workspace / ".claude" / name, base.workspace) for name in names]
    for file, inside in files:
        found, told = from_claude(file, inside=inside)
        hooks += found
        notices += told
    return hooks, edits, notices


def _project_table(base: Base) -> dict[str, Any]:
    """Return ``[hooks]`` of the project's own file, to tell its hooks from the user's."""
    import tomllib

    try:
        table = tomllib.loads((base.workspace / ".aar/config.toml").read_text(encoding="utf-8-sig")).get(
            "hooks"
        )
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", table) if isinstance(table, dict) else {}


class SessionHooks:
    """The hooks of one session.

    Args:
        runtime: Settings, wall and processes.
        session: The session.
        hooks: Commands on events.
        edits: Commands after edits.
    """

    def __init__(self, runtime: Runtime, session: Session, hooks: list[Hook], edits: list[AfterEdit]) -> None:
        self._runtime, self._session, self._edits = runtime, session, edits
        # Beside the session's folder, also where it cannot be made.
        file = str(session.folder.with_suffix(".jsonl")) if session.folder is not None else ""
        self.runner = HookRunner(
            hooks,
            runtime.spawner,
            runtime.workspace,
            session.session_id,
            file,
            mode=lambda: runtime.mode,
            wall=runtime.wall,
            tell=self._tell,
        )
        self._begun = False
        self._done: set[str] = set()
        self._missing: set[str] = set()
        self._entered: set[Path] = set()
        if runtime.base.trusted:
            self.runner.listen("after_tool", self._enter)
        self.runner.listen("prompt_submit", self._begin)
        if runtime.config.lsp:
            from aar.runtime.lsp import attach

            attach(runtime, session, self.runner)
        self._watching = self._ending = False
        self._heed()

    def take_listeners(self, listeners: Iterable[tuple[str, Listener]]) -> None:
        """Let these hooks of extensions hear of events, in place of those before them."""
        guests: dict[str, list[Listener]] = {}
        for event, listener in listeners:
            guests.setdefault(event, []).append(listener)
        self.runner.guests = guests
        self._heed()

    def reload(self) -> list[str]:
        """Read the hooks of user and project again; return sentences about what is not understood.

        Raises:
            ConfigurationError: A hook in a config file is wrong.
        """
        hooks, edits, notices = load_hooks(self._runtime.base)
        self.runner.hooks, self._edits = hooks, edits
        self._heed()
        return notices

    def _heed(self) -> None:
        """Watch the session where somebody hears of what only is to be watched."""
        if not self._watching and any(self.runner.wants(event) for event in _SEEN):
            self._watching = True
            self._session.subscribe("hooks", self._watch)
        if not self._ending and self.runner.wants("session_end"):
            self._ending = True
            self._session.before_close.append(self._end)
        if self._edits and self._after_edit not in self.runner.listeners.get("file_changed", ()):
            self.runner.listen("file_changed", self._after_edit)

    def _tell(self, message: str) -> None:
        with suppress(StorageError):
            self._session.append(Notice(level="warning", code="hook", message=message))

    async def _begin(self, _event: str, _data: Mapping[str, Any]) -> HookVerdict | None:
        """Tell of the session with its first prompt, so that what hooks add stands beside that."""
        if self._begun or not self.runner.wants("session_start"):
            return None
        self._begun = True
        source = "startup" if self._session.opened_seq <= 1 else "resume"
        said = await self.runner.fire("session_start", {"source": source})
        return HookVerdict(context=said.context, trusted=said.trusted)

    async def _end(self) -> None:
        if self.runner.wants("session_end"):
            await self.runner.fire("session_end", {"reason": "exit"})

    async def _watch(self, event: Event) -> None:
        """Tell of what only is to be heard of."""
        for name, data in self._heard(event):
            if self.runner.wants(name):
                await self.runner.fire(name, {**data, "agent_id": event.agent_id})

    def _heard(self, event: Event) -> list[tuple[str, dict[str, Any]]]:
        match event:
            case StateEvent(state=AgentState.COMPACTING):
                return [("compaction", {"trigger": "auto"})]
            case ErrorEvent():
                return [("error", {"kind": str(event.kind), "message": event.message})]
            case PlanEvent():
                done = [
                    item for item in event.items if item.status == "completed" and item.id not in self._done
                ]
                self._done = {item.id for item in event.items if item.status == "completed"}
                items = [item.model_dump(mode="json") for item in event.items]
                steps = [("plan_step_done", {"item": item.model_dump(mode="json")}) for item in done]
                return [("plan_changed", {"items": items}), *steps]
            case ApprovalRequest():
                message = f"aar needs your permission to use {event.tool_name}"
                return [("notification", {"message": message})]
            case Notice() if event.level != "info" and event.code != "hook":
                return [("notification", {"message": event.message})]
            case _:
                return []

    # --- after edits -------------------------------------------------------------------------------------

    async def _after_edit(self, _event: str, data: Mapping[str, Any]) -> HookVerdict | None:
        """Format and check the files that a call changed; problems go to the model as data."""
        reports: list[str] = []
        for change in data.get("files", ()):
            path = str(change.get("path", ""))
            if not path or change.get("action") == "delete":
                continue
            for edit in self._edits:
                if fnmatch(path, edit.glob) or fnmatch(Path(path).name, edit.glob):
                    reports += await self._check(edit, path)
        return HookVerdict(context=tuple(reports), trusted=False) if reports else None

    async def _check(self, edit: AfterEdit, path: str) -> list[str]:
        runtime = self._runtime
        if edit.project and runtime.wall() == "none" and runtime.mode != "unsafe":
            return []
        file = runtime.workspace / path
        before = _content(file)
        command = edit.command.replace("{path}", shlex.quote(path))
        request = SpawnRequest(
            ("/bin/sh", "-c", command),
            runtime.workspace,
            kind="tool" if edit.sandbox else "helper",
            timeout_s=edit.timeout,
            read_only=runtime.mode == "plan",
        )
        try:
            ended = await runtime.spawner.run(request)
        except (AarError, OSError) as error:
            self._tell(f"{command} could not run after the edit: {error}")
            return []
        found: list[str] = []
        if _content(file) != before:
            found.append(f"{path} was rewritten by `{command}`; read it again before you change it.")
        if ended.exit_code == _NOT_FOUND:
            self._tell_missing(edit.command)  # no fault of the model's change
        elif ended.exit_code != 0:
            output = clean_text(ended.output.decode("utf-8", "replace")).strip()[-_MAX_REPORT:]
            end = "took too long" if ended.timed_out else f"ended with code {ended.exit_code}"
            found.append(f"After the change of {path}, `{command}` {end}:\n{output}")
        return found

    def _tell_missing(self, command: str) -> None:
        name = command.strip().partition(" ")[0][:80]
        if name not in self._missing:
            self._missing.add(name)
            why = "is not there, so it did not run after the edit"
            self._tell(f"{name} {why}: install it, or take it out of [[hooks.after_edit]].")

    # --- rules of folders --------------------------------------------------------------------------------

    async def _enter(self, _event: str, data: Mapping[str, Any]) -> HookVerdict | None:
        """Show the rules of a folder below the project when the first file in it is looked at."""
        path = cast("dict[str, Any]", data.get("arguments") or {}).get("path")
        if data.get("tool_name") not in _ENTERING or data.get("is_error") or not isinstance(path, str):
            return None
        root = self._runtime.workspace
        place = (root / path).resolve()
        folder = place if place.is_dir() else place.parent
        if not folder.is_relative_to(root):
            return None
        texts: list[str] = []
        known = {root, *self._runtime.base.cwd.parents, self._runtime.base.cwd, *self._entered}
        for entered in (folder, *folder.parents):
            if entered in known or not entered.is_relative_to(root):
                continue
            self._entered.add(entered)
            if rules := folder_rules(entered, root):
                shown = rules.path.relative_to(root)
                texts.insert(
                    0, f"Rules of the folder {shown.parent}, from {shown}. Follow them there:\n\n{rules.text}"
                )
        return HookVerdict(context=tuple(texts)) if texts else None


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes() if file.stat().st_size < 20_000_000 else None
    except OSError:
        return None
