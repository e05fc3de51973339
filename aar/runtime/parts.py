"""All parts of one aar process, put together, and what may change while it lives."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from aar.config.schema import Config, PermissionMode
from aar.core.provider_runner import ActiveModel
from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.protocol.events import Event, Notice
from aar.protocol.late import collect_from_now_on
from aar.protocol.ports import Spawner
from aar.protocol.tool import ToolSpec
from aar.runtime.assembly import Assembly, main_agent
from aar.runtime.audit import keep_audit
from aar.runtime.background import Background
from aar.runtime.base import Base
from aar.runtime.checkpoints import SessionCheckpoints, make_store
from aar.runtime.context import SmallModels
from aar.runtime.extras import Extras
from aar.runtime.mcp import ServerTools
from aar.runtime.models import choice_notice, make_active_model
from aar.runtime.own_model import own_model, same_provider
from aar.runtime.policy import make_policy, model_hosts
from aar.runtime.resilience import OpenedModels
from aar.runtime.rest import register_services
from aar.runtime.sessions import events_since_opening, find_session, latest_of, resume_or_fork
from aar.runtime.web import register_search
from aar.safety.files import WorkspaceFiles
from aar.safety.policy import SafetyPolicy
from aar.safety.spawn import ProcessSpawner
from aar.tools.foreground import Foreground
from aar.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from aar.core.agent import Agent
    from aar.core.prompt import SystemPrompt
    from aar.memory.memory_store import MemoryStore
    from aar.orchestration.profiles import Profile
    from aar.tools.builtin.kept_shell import KeptShell

_MAX_SURVEY = 20_000


@dataclass
class Runtime:
    """All parts of one aar process in one workspace, put together.

    Attributes:
        base: Folders, settings, trust.
        store: Where sessions are kept.
        active: The model that answers.
        base_url: Address of its server, where the command line named one.
        why_model: Why it was chosen, where nobody named it; for the screen.
        mode: Permission mode.
        interactive: Whether a person can answer questions.
        spawner: Starts processes.
        registry: All tools.
        roots: More folders that may be changed.
        custom_prompt: Source and text of what replaces the built-in instructions.
        reasoning: How much the model thinks first; ``None``: its default.
        notices: Sentences for the user, told at the start of a run.
        approve_with: Program that answers questions where no person does.
        mcp_configs: Files of ``--mcp-config``.
        make_files: Makes the file access of an agent; an editor's sees what is not saved yet.
        profile: The agent that works, where it is not aar's plain self.
        agent_name: Name of the agent that worked first, if it was one of those.
        takes_commands: Whether the user can type slash commands.
    """

    base: Base
    store: SessionStore | MemoryStore
    active: ActiveModel
    why_model: str | None
    mode: PermissionMode
    interactive: bool
    spawner: ProcessSpawner
    registry: ToolRegistry
    roots: tuple[Path, ...] = ()
    custom_prompt: tuple[str, str] | None = None
    reasoning: str | int | None = None
    notices: list[str] = field(default_factory=list[str])
    approve_with: str | None = None
    mcp_configs: Sequence[Path] = ()
    make_files: Callable[..., WorkspaceFiles] = WorkspaceFiles
    profile: Profile | None = None
    agent_name: str | None = None
    takes_commands: bool = False
    base_url: str | None = None
    spawn_for: Callable[[str], Spawner] | None = None
    """Starts the commands of a call by its id elsewhere, such as in an editor's terminal; none: here."""
    background: Background = field(default_factory=Background)
    foreground: Foreground = field(default_factory=Foreground)
    shells: dict[tuple[str, str], KeptShell] = field(default_factory=dict["tuple[str, str]", "KeptShell"])
    """What commands leave to the next, by session and agent."""
    _left: list[ActiveModel] = field(default_factory=list[ActiveModel])
    _temporary: list[Path] = field(default_factory=list[Path])
    _checkpoints: dict[str, SessionCheckpoints] = field(default_factory=dict[str, SessionCheckpoints])

    def __post_init__(self) -> None:
        # The system prompt tells the mode of the start: it must not change while the session goes on.
        self.prompt_mode: PermissionMode = self.mode
        self.opened = OpenedModels(self.base)
        self.small_models = SmallModels(self.base)
        register_search(self.config, self.registry)
        register_services(self.base, self.registry)
        self.servers = ServerTools(
            self.base,
            self.spawner,
            self.registry,
            self.notices,
            self.mcp_configs,
            interactive=self.interactive,
            active=lambda: self.active,
        )
        self.extras = Extras(self)
        if self.agent_name is not None:
            self.set_agent(self.agent_name)

    @property
    def config(self) -> Config:
        """All settings."""
        return self.base.config

    @property
    def workspace(self) -> Path:
        """Root of the project."""
        return self.base.workspace

    def notice(self, message: str) -> Notice:
        """Return the event that tells the user something at the start of a run."""
        return Notice(level="warning", message=message, code="start")

    # --- sessions ------------------------------------------------------------------------------------

    def open_session(
        self,
        *,
        continue_latest: bool = False,
        session_id: str | None = None,
        fork_id: str | None = None,
        title: str | None = None,
        fork_at: int | None = None,
        fork_if_open: bool = False,
    ) -> Session:
        """Begin a session, or go on with a stored one or a copy of it.

        A stored one goes on with its own model at its own address, unless this start names others.

        Args:
            continue_latest: The newest of this folder.
            session_id: This one.
            fork_id: A copy of this one.
            title: The new title.
            fork_at: The copy ends at this event.
            fork_if_open: Go on with a copy where another process has the session open.

        Raises:
            StorageError: There is no such session, or another process has it open.
            ConfigurationError: There is no session to continue in this folder.
        """
        if continue_latest and session_id is None and fork_id is None:
            session_id = latest_of(self.store, self.workspace)
        if fork_id is not None:
            session = Session.fork(self.store, find_session(self.store, fork_id), fork_at, cwd=self.workspace)
        elif session_id is not None:
            session = resume_or_fork(
                self.store, find_session(self.store, session_id), self.workspace, fork_if_open=fork_if_open
            )
        else:
            active = self.active
            session = Session.create(
                self.store, cwd=self.workspace, model=active.name, base_url=active.kept_address, title=title
            )
            title = None
        if session.opened_seq > 1:
            self.go_on_with_model_of(session)
        if title is not None:
            session.rename(title)
        keep_audit(self.base, self.store, session)
        return session

    def go_on_with_model_of(self, session: Session) -> None:
        """Let the model answer that was chosen in a stored session, unless this start names another one.

        Where it cannot be had, the present one answers, and a notice in the session says so.
        """
        active = own_model(self, session)
        if active is not None:
            self.spawner.keep_from(model_hosts(self.config, active.base_url))
            self._answer_with(active)
            active.provider.warm()

    def _answer_with(self, active: ActiveModel) -> None:
        if self.why_model is not None:
            self.notices.remove(choice_notice(self.active, self.why_model))
            self.why_model = None
        self._left.append(self.active)
        self.active = active

    def opening_events(self, session: Session) -> list[Event]:
        """Return what was stored since ``session`` was opened, for those who could not watch it yet."""
        return events_since_opening(self.store, session)

    def opening_notices(self, session: Session) -> list[Notice]:
        """Return the notices among them that tell of trouble, such as a disk that is full."""
        found = (event for event in self.opening_events(session) if isinstance(event, Notice))
        return [notice for notice in found if notice.level != "info"]

    # --- what may change while it lives ---------------------------------------------------------------

    def set_mode(self, mode: PermissionMode) -> None:
        """Change the permission mode.

        Raises:
            ConfigurationError: The mode needs a wall that is not there.
        """
        make_policy(self.base, mode, "none" if mode == "unsafe" else self.spawner.wall)
        self.mode = mode

    def set_model(self, name: str) -> None:
        """Let another model answer. Agents that exist keep theirs.

        One of the same provider is asked at the same server.

        Raises:
            ConfigurationError: There is no such provider, or its settings are wrong.
        """
        address = self.active.base_url if same_provider(name, self.active.name) else None
        active, _ = make_active_model(self.base, address, name=name)
        self._answer_with(active)

    async def close_left(self) -> None:
        """Close the connections of models that answer no more; no agent may be using them."""
        while self._left:
            await self._left.pop().provider.aclose()

    def set_agent(self, name: str | None) -> None:
        """Let the agent ``name`` work, in agents that are made after this; ``None``: aar itself.

        Raises:
            ConfigurationError: There is no such agent, or its model cannot be used.
        """
        profile = None if name is None else self.extras.profile(name)
        if profile is not None and profile.model is not None:
            self.set_model(profile.model)
        self.profile = profile

    # --- the agent -----------------------------------------------------------------------------------

    def agent(self, session: Session) -> Agent:
        """Return an agent for ``session``, with policy, tools and model in place."""
        agent = main_agent(self, session)
        collect_from_now_on()
        return agent

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the model may use: those enabled, and few for a small model."""
        return Assembly.of(self).tools()

    def prompt(self, tools: Sequence[ToolSpec]) -> SystemPrompt:
        """Return the system prompt for these tools."""
        return Assembly.of(self).prompt(tools)

    def checkpoints(self, session: Session) -> SessionCheckpoints | None:
        """Return what keeps the files of ``session``; ``None`` when the settings want nothing kept."""
        settings = self.config.checkpoints
        if not settings.enabled:
            return None
        kept = self._checkpoints.get(session.session_id)
        if kept is None or kept.session is not session:
            kept = SessionCheckpoints(
                make_store(self.base, self.spawner),
                session,
                wait_s=settings.wait_seconds,
                keep_days=settings.keep_days,
                quota_bytes=settings.quota_mb * 1_000_000,
            )
            self._checkpoints[session.session_id] = kept
        return kept

    def policy(self) -> SafetyPolicy:
        """Return the policy for this workspace, mode and wall."""
        headless = not self.interactive and self.approve_with is None
        return make_policy(self.base, self.mode, self.wall(), self.roots, headless=headless)

    def wall(self) -> str:
        """Return the name of the wall around commands; ``none`` in mode ``unsafe``."""
        return "none" if self.mode == "unsafe" else self.spawner.wall

    def allow_domain(self, rule: str) -> None:
        """Let commands reach one more host until aar ends; see `ToolResult.would_allow`.

        Args:
            rule: ``HOST``, ``*.HOST``, ``HOST:PORT`` or a preset such as ``pypi``.

        Raises:
            ConfigurationError: It is none of these.
        """
        self.spawner.allow_domain(rule)

    def files(self) -> WorkspaceFiles:
        """Return file access within the limits of this workspace."""
        return self._files(self.make_files, self.workspace, (*self.roots, *self.base.writable), self.spawner)

    def files_in(self, folder: Path, spawner: ProcessSpawner) -> WorkspaceFiles:
        """Return file access within ``folder`` alone, behind the wall of ``spawner``."""
        return self._files(WorkspaceFiles, folder, (), spawner)

    def _files(
        self,
        make: Callable[..., WorkspaceFiles],
        folder: Path,
        roots: tuple[Path, ...],
        spawner: ProcessSpawner,
    ) -> WorkspaceFiles:
        sandbox = self.config.sandbox
        return make(
            folder,
            extra_roots=roots,
            readable=sandbox.readable,
            secrets=sandbox.secrets,
            protected=sandbox.protected,
            changing=spawner.own_change,
        )

    async def survey(self) -> list[str]:
        """Return the paths of the project's files that are not ignored, relative, in path order."""
        from threading import Event

        from aar.tools.builtin.walk import walk

        stop = Event()
        try:
            return await asyncio.to_thread(lambda: list(islice(walk(self.workspace, stop), _MAX_SURVEY)))
        finally:
            stop.set()

    def outputs_folder(self, session: Session) -> Path:
        """Return where long outputs of ``session`` are kept."""
        if session.folder is not None:
            return session.folder / "outputs"
        folder = self.base.paths.outputs / session.session_id
        self._temporary.append(folder)
        return folder

    async def aclose(self) -> None:
        """End background processes, close connections."""
        await self.background.end(self.spawner)
        for checkpoints in self._checkpoints.values():
            await checkpoints.aclose()
        await self.servers.aclose()
        await self.extras.extensions.aclose()
        await self.close_left()
        await self.active.provider.aclose()
        await self.opened.aclose()
        await self.small_models.aclose()
        self.spawner.close()
        for folder in self._temporary:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
