"""All parts of one aar process, put together: configuration in, `Runtime` out."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aar.config.paths import ensure
from aar.config.schema import Config, PermissionMode
from aar.config.tighten import stricter_mode
from aar.core.agent import Agent
from aar.core.approvals import PermissionManager, Scope
from aar.core.prompt import SystemPrompt, build_prompt
from aar.core.provider_runner import ActiveModel, Trace
from aar.core.session import Session
from aar.core.verify import Verifier
from aar.core.view import SessionView
from aar.memory.memory_store import MemoryStore
from aar.memory.session_file import SessionOpenError
from aar.memory.session_store import SessionStore
from aar.protocol.errors import ConfigurationError, StorageError
from aar.protocol.events import Event, Notice, PlanEvent, PlanItem, ToolCall
from aar.protocol.ports import Approver, Emit, Process, ToolContext
from aar.protocol.tool import ToolSpec
from aar.providers.base import ProviderCapabilities
from aar.runtime.approve_with import ProgramApprover
from aar.runtime.audit import keep_audit
from aar.runtime.base import Base, log_failure, open_base
from aar.runtime.checkpoints import SessionCheckpoints, make_store
from aar.runtime.context import SmallModels, budget_of
from aar.runtime.extras import Extras
from aar.runtime.mcp import ServerTools
from aar.runtime.models import make_active_model
from aar.runtime.policy import choose_mode, make_policy, model_hosts, save_rule
from aar.runtime.questions import make_ask
from aar.runtime.resilience import OpenedModels, make_runner
from aar.runtime.web import register_search, web_settings
from aar.safety.environment import secret_values
from aar.safety.files import WorkspaceFiles
from aar.safety.policy import SafetyPolicy
from aar.safety.spawn import ProcessSpawner
from aar.tools.executor import ToolExecutor
from aar.tools.output_store import OutputStore
from aar.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from aar.core.files_coach import FilesCoach
    from aar.orchestration.delegate import Member
    from aar.orchestration.profiles import Profile
    from aar.safety.redact import Redactor

_MAX_SURVEY = 20_000
_SMALL_TOOLS = frozenset({"read_file", "write_file", "edit_file", "bash", "list_directory", "grep"})
_FEWEST_TOOLS = frozenset({"read_file", "write_file", "edit_file", "bash"})


@dataclass
class Runtime:
    """All parts of one aar process in one workspace, put together.

    Attributes:
        base: Folders, settings, trust.
        store: Where sessions are kept.
        active: The model that answers.
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
    _background: dict[str, Process] = field(default_factory=dict[str, Process])
    _temporary: list[Path] = field(default_factory=list[Path])
    _checkpoints: dict[str, SessionCheckpoints] = field(default_factory=dict[str, SessionCheckpoints])

    def __post_init__(self) -> None:
        # The system prompt tells the mode of the start: it must not change while the session goes on.
        self._prompt_mode = self.mode
        self._opened = OpenedModels(self.base)
        self._small = SmallModels(self.base)
        register_search(self.config, self.registry)
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
        self._below = False
        self._above: Agent | None = None
        self._begin_as(self.agent_name)

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
            session_id = self._latest()
        if fork_id is not None:
            session = Session.fork(self.store, self._find(fork_id), fork_at, cwd=self.workspace)
        elif session_id is not None:
            session = self._resumed(self._find(session_id), fork_if_open)
        else:
            session = Session.create(self.store, cwd=self.workspace, model=self.active.name, title=title)
            title = None
        if title is not None:
            session.rename(title)
        keep_audit(self.base, self.store, session)
        return session

    def _resumed(self, session_id: str, fork_if_open: bool) -> Session:
        try:
            return Session.resume(self.store, session_id)
        except SessionOpenError:
            if not fork_if_open:
                raise
            return Session.fork(self.store, session_id, cwd=self.workspace)

    def _latest(self) -> str:
        latest = self.store.latest(self.workspace)
        if latest is None:
            raise ConfigurationError(
                f"There is no session of {self.workspace} to continue; leave --continue out to begin one."
            )
        return latest

    def opening_events(self, session: Session) -> list[Event]:
        """Return what was stored since ``session`` was opened, for those who could not watch it yet."""
        if session.degraded:
            return list(session.events(session.opened_seq))
        return self.store.tail(session.session_id, session.last_seq - session.opened_seq + 1)

    def _find(self, prefix: str) -> str:
        try:
            return self.store.find(prefix)
        except StorageError as error:
            raise ConfigurationError(str(error)) from error

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

        Raises:
            ConfigurationError: There is no such provider, or its settings are wrong.
        """
        self.active, _ = make_active_model(self.base, name=name)

    def _begin_as(self, name: str | None) -> None:
        if name is None:
            return
        try:
            self.set_agent(name)
        except ConfigurationError:
            self.spawner.close()
            raise

    def set_agent(self, name: str | None) -> None:
        """Let the agent ``name`` work, in agents that are made after this; ``None``: aar itself.

        Raises:
            ConfigurationError: There is no such agent, or its model cannot be used.
        """
        profile = None if name is None else self.extras.profile(name)
        if profile is not None and profile.model is not None:
            self.set_model(profile.model)
        self.profile = profile

    def add_root(self, path: Path) -> None:
        """Let tools change files below ``path``, for agents that are made after this.

        Raises:
            ConfigurationError: There is no such folder.
        """
        self.roots = (*self.roots, _existing(path))

    # --- the agent -----------------------------------------------------------------------------------

    def agent(self, session: Session) -> Agent:
        """Return an agent for ``session``, with policy, tools and model in place."""
        policy = self.policy()
        if self.profile is not None:
            policy = policy.narrowed(self.profile.mode)

        def keep(rule: str, scope: Scope) -> None:
            # Not ``policy``: an agent that is made again goes on with the rules of the one before it.
            save_rule(self.base, agent.executor.policy.base, rule, scope)

        approvals = PermissionManager(keep)
        approver: Approver | None = approvals if self.interactive else None
        if approver is None and self.approve_with is not None:
            approver = ProgramApprover(self.approve_with, self.spawner, self.workspace, keep)
        place = self.extras.main_place(session, lambda: agent)
        agent = self._assemble(session, policy, approver, place, approvals=approvals)
        agent.before_end = self.extras.at_end(place.team)
        agent.hooks = agent.executor.hooks = self.extras.hooks(session)
        return agent

    def child_agent(
        self, session: Session, profile: Profile, agent_id: str, parent: Agent, place: Member
    ) -> Agent:
        """Return an agent that works for ``parent`` and may do nothing that ``parent`` may not.

        Raises:
            ConfigurationError: Its model cannot be used.
        """
        below = copy(self)
        below.profile, below._below, below._above = profile, True, parent
        below._prompt_mode = stricter_mode(parent.executor.policy.mode, profile.mode)
        if profile.model is not None:
            below.active = self._opened.open(profile.model)
        agent = below._assemble(
            session,
            parent.executor.policy.narrowed(profile.mode),
            parent.executor.approver,
            place,
            agent_id=agent_id,
            parent=parent,
        )
        agent.hooks = agent.executor.hooks = self.extras.hooks(session)
        return agent

    def _assemble(
        self,
        session: Session,
        policy: SafetyPolicy,
        approver: Approver | None,
        place: Member,
        *,
        approvals: PermissionManager | None = None,
        agent_id: str = "main",
        parent: Agent | None = None,
    ) -> Agent:
        """Put an agent together; ``parent``: the one that it works for."""
        asked = approver if isinstance(approver, PermissionManager) else None
        files = self.files()
        outputs = OutputStore(self._outputs_folder(session))
        tools = self.tools()
        if parent is not None:
            tools = place.tools_below(tools, parent)

        def make_context(call: ToolCall, emit: Emit) -> ToolContext:
            context = self._context(call, emit, session, files, outputs, asked)
            context.read_only = executor.policy.mode == "plan"
            context.delegate = place.for_call(call, emit)
            return context

        executor = ToolExecutor(
            self.registry,
            policy,
            approver,
            make_context,
            sync=session.sync,
            checkpointer=self.checkpoints(session),
            enabled=self.servers.callable_names(tools, self._may_use),
            parallel=self.config.tools.parallel,
            max_calls=self.config.limits.tool_calls_per_step,
            max_output_chars=self.config.tools.max_output_chars,
            log=log_failure,
            redact=self._redactor().redact_known,
        )
        if parent is not None:
            executor.outside.inherited = lambda: parent.executor.outside.came
        runner = make_runner(self.base, self.active, self._opened, asked, self._trace())
        return Agent(
            self.extras.agent_config(self.profile, below=parent is not None),
            runner,
            executor,
            lambda opened: self.extras.view_of(
                self.profile, agent_id, self._view_of(runner.active, opened, tools, files)
            ),
            files,
            approvals=approvals,
            agent_id=agent_id,
            parent_limits=lambda: None if parent is None else parent.limits,
            make_verifier=self._verifier if parent is None else lambda: None,
            survey=self.survey,
            log=log_failure,
            keep_output=outputs.keep,
            prepare=self.servers.prepare,
            notes_model=self._small.model,
            budget=budget_of(self.base, session) if parent is None else parent.budget,
        )

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

    def _trace(self) -> Trace | None:
        """Return what writes requests and answers into the diagnostics log, if that is wanted."""
        if "llm" not in self.config.log.trace:
            return None
        from aar.observability.diagnostics_log import trace

        return lambda label, text: trace("llm", label, text())

    def policy(self) -> SafetyPolicy:
        """Return the policy for this workspace, mode and wall."""
        headless = not self.interactive and self.approve_with is None
        return make_policy(self.base, self.mode, self.wall(), self.roots, headless=headless)

    def _redactor(self) -> Redactor:
        """Return what takes secrets out of text: keys by form, and values that commands never see."""
        from aar.safety.redact import Redactor

        return Redactor(secret_values(os.environ))

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
        sandbox = self.config.sandbox
        return self.make_files(
            self.workspace,
            extra_roots=(*self.roots, *(Path(path).expanduser() for path in sandbox.writable)),
            readable=sandbox.readable,
            secrets=sandbox.secrets,
            protected=sandbox.protected,
            changing=self.spawner.own_change,
        )

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the model may use: those enabled, and few for a small model."""
        self.extras.register()
        specs = self.servers.own_specs(self.registry, self.config.tools.enabled)
        if self.active.capabilities.compact_prompt and self.config.tools.enabled is None:
            few = _FEWEST_TOOLS if _is_led(self.active.capabilities) else _SMALL_TOOLS
            specs = [spec for spec in specs if spec.name in few]
        if self.profile is not None:
            allowed = self.profile.allowed(self.registry, [spec.name for spec in specs])
            specs = [spec for spec in specs if spec.name in allowed]
        return tuple(specs)

    def prompt(self, tools: Sequence[ToolSpec]) -> SystemPrompt:
        """Return the system prompt for these tools."""
        from aar.config.rules_files import project_rules

        capabilities = self.active.capabilities
        rules = project_rules(
            self.workspace, self.base.cwd, config=self.base.paths.config, trusted=self.base.trusted
        )
        return build_prompt(
            workspace=self.workspace,
            dialect=capabilities.dialect,
            tools=tools,
            mode=self._prompt_mode,
            compact=capabilities.compact_prompt,
            dialect_rules=_dialect_rules(capabilities, tools),
            rules=[(str(rule.path), rule.text) for rule in rules],
            custom=self._instructions(),
        )

    def _may_use(self, name: str) -> bool:
        """Tell whether the agent may use a server's tool: its profile has it, and so has who it works for."""
        mine = self.profile is None or name in self.profile.allowed(self.registry, [name])
        return mine and (self._above is None or self._above.executor.offers(name))

    def _instructions(self) -> tuple[str, str] | None:
        """Return source and text of what replaces the built-in instructions, if something does."""
        if self.profile is None:
            return self.custom_prompt
        return self.extras.instructions(self.profile, below=self._below)

    def _view_of(
        self, active: ActiveModel, session: Session, tools: tuple[ToolSpec, ...], files: WorkspaceFiles
    ) -> SessionView:
        """Return the view of the model that answers now; it may go on for the one of the start."""
        if active is self.active:
            return self._view(session, tools, files)
        other = copy(self)
        other.active = active
        return other._view(session, tuple(tool for tool in other.tools() if tool in tools), files)

    def _view(self, session: Session, tools: tuple[ToolSpec, ...], files: WorkspaceFiles) -> SessionView:
        model = self.config.model
        settings: dict[str, Any] = {
            "max_output_tokens": model.max_output_tokens,
            "temperature": model.temperature,
            "stop": model.stop,
            "reasoning": self.reasoning,
        }
        return SessionView(
            session,
            self.active,
            self.prompt(tools),
            tools,
            self._resolve_name,
            coach=self._coach(files),
            settings=settings,
            more_tools=lambda: self.servers.more_tools(self._may_use),
        )

    def _coach(self, files: WorkspaceFiles) -> FilesCoach | None:
        """Return help for a model that is too small to find its way alone."""
        capabilities = self.active.capabilities
        if capabilities.dialect != "files" and not _is_led(capabilities):
            return None
        from aar.core.files_coach import FilesCoach
        from aar.core.project_files import ProjectFiles
        from aar.core.text_coach import TextCoach

        project, budget = ProjectFiles(files), self.config.context.files_budget_tokens
        if capabilities.dialect == "files":
            return FilesCoach(project, budget)
        return TextCoach(project, budget, takes_grammar=capabilities.grammar)

    def _resolve_name(self, name: str) -> str | None:
        spec = self.registry.get(name)
        return None if spec is None else spec.name

    def _verifier(self) -> Verifier | None:
        commands = self.config.verify.commands
        if not commands:
            return None
        return Verifier(commands, self.spawner, self.workspace, self.config.verify)

    async def survey(self) -> list[str]:
        """Return the paths of the project's files that are not ignored, relative, in path order."""
        from threading import Event

        from aar.tools.builtin.walk import walk

        stop = Event()
        try:
            return await asyncio.to_thread(lambda: list(islice(walk(self.workspace, stop), _MAX_SURVEY)))
        finally:
            stop.set()

    def _context(
        self,
        call: ToolCall,
        emit: Emit,
        session: Session,
        files: WorkspaceFiles,
        outputs: OutputStore,
        approvals: PermissionManager | None,
    ) -> ToolContext:
        def set_plan(items: Sequence[PlanItem]) -> None:
            revision = session.totals.plan_revision + 1
            emit.append(PlanEvent(items=tuple(items), revision=revision))

        return ToolContext(
            call_id=call.call_id,
            workspace=self.workspace,
            files=files,
            spawner=self.spawner,
            outputs=outputs,
            progress=lambda text: None,
            ask=make_ask(approvals, call, emit),
            plan=session.plan,
            set_plan=set_plan,
            read_only=self.mode == "plan",
            max_output_chars=self.config.tools.max_output_chars,
            background=self._background,
            settings={
                "bash.timeout": self.config.tools.timeout("bash", 120),
                **web_settings(self.config),
            },
            checkpointer=self.checkpoints(session),
        )

    def _outputs_folder(self, session: Session) -> Path:
        if isinstance(self.store, SessionStore):
            return self.store.path(session.session_id).with_suffix(".d") / "outputs"
        folder = self.base.paths.outputs / session.session_id
        self._temporary.append(folder)
        return folder

    async def aclose(self) -> None:
        """End background processes, close connections."""
        for process in self._background.values():
            if process.running:
                await process.kill()
        for checkpoints in self._checkpoints.values():
            await checkpoints.aclose()
        await self.servers.aclose()
        await self.active.provider.aclose()
        await self._opened.aclose()
        await self._small.aclose()
        self.spawner.close()
        if isinstance(self.store, MemoryStore):
            for folder in self._temporary:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def open_runtime(
    *,
    base_url: str | None = None,
    add_dirs: Sequence[Path] = (),
    system_prompt: Path | None = None,
    interactive: bool = False,
    approve_with: str | None = None,
    driven: bool = False,
    mcp_configs: Sequence[Path] = (),
    agent: str | None = None,
    **base_arguments: Any,
) -> Runtime:
    """Put a runtime together; nothing is sent and no process is started that is not needed for that.

    Args:
        base_url: ``--base-url``.
        add_dirs: More folders that may be changed.
        system_prompt: File that replaces the built-in instructions.
        interactive: Whether a person can answer questions.
        approve_with: Program that answers them otherwise.
        driven: Whether a program that drives the session answers questions; the mode is then chosen as
            without a person where a wall holds.
        mcp_configs: Files of ``--mcp-config``.
        agent: ``--agent``: name of the agent that works.
        **base_arguments: As for `open_base`.

    Raises:
        ConfigurationError: A setting, key, file or folder is wrong.
        SandboxError: A wall that was demanded cannot be raised.
    """
    base = open_base(**base_arguments)
    roots = tuple(_existing(path) for path in add_dirs)
    notices = list(base.notices)
    sandbox = base.config.sandbox
    writable = tuple(Path(path).expanduser() for path in sandbox.writable)
    spawner = ProcessSpawner(
        base.workspace,
        sandbox,
        (*roots, *writable),
        own=base.own_folders,
        never=model_hosts(base.config, base_url),
    )
    # The wall is tried in another process, which gets ready while this one imports.
    spawner.warm()
    try:
        active, why = make_active_model(base, base_url)
        active.provider.warm()
        if why is not None:
            notices.append(f"Using {active.name}: {why}.")
        from aar.tools.builtin.catalogue import builtin_tools

        registry = ToolRegistry(builtin_tools())
        asks = interactive or (driven and not spawner.status().enforced)
        mode = choose_mode(base, spawner, asks, notices)
        custom_prompt = _custom_prompt(system_prompt)
        store = _store(base)
    except BaseException:
        spawner.close()
        raise
    return Runtime(
        base=base,
        agent_name=agent,
        store=store,
        active=active,
        why_model=why,
        mode=mode,
        interactive=interactive or driven,
        spawner=spawner,
        registry=registry,
        roots=roots,
        custom_prompt=custom_prompt,
        reasoning=base.config.model.reasoning,
        notices=notices,
        approve_with=approve_with,
        mcp_configs=mcp_configs,
    )


def _dialect_rules(capabilities: ProviderCapabilities, tools: Sequence[ToolSpec]) -> str:
    """Return what teaches a model without trained tool calls how to act."""
    if capabilities.dialect == "native":
        return ""
    from aar.providers.text_tools import FILES_RULES, render_tools_prompt

    if capabilities.dialect == "files":
        return FILES_RULES
    return render_tools_prompt(tools, led=_is_led(capabilities))


def _is_led(capabilities: ProviderCapabilities) -> bool:
    """Tell whether the model calls tools in text and is so small that it is led step by step."""
    return capabilities.dialect == "text" and capabilities.small


def _existing(path: Path) -> Path:
    if not path.expanduser().is_dir():
        raise ConfigurationError(f"--add-dir {path}: there is no such folder.")
    return path.expanduser().resolve()


def _store(base: Base) -> SessionStore | MemoryStore:
    if not base.config.session.store:
        return MemoryStore()
    ensure(base.paths.sessions)
    return base.store()


def _custom_prompt(file: Path | None) -> tuple[str, str] | None:
    if file is None:
        return None
    try:
        return str(file), file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigurationError(f"--system-prompt {file} cannot be read: {error.strerror}.") from error
