"""The agent of a session, put together: model, tools, prompt, policy and who it works for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from aar.config.tighten import stricter_mode
from aar.core.agent import Agent
from aar.core.approvals import PermissionManager, Scope
from aar.core.prompt import SystemPrompt, build_prompt
from aar.core.provider_runner import ActiveModel, Trace
from aar.core.session import Session
from aar.core.view import SessionView
from aar.protocol.events import PlanEvent, PlanItem, ToolCall
from aar.protocol.ports import Approver, Emit, ToolContext
from aar.protocol.tool import SideEffect, ToolSpec
from aar.providers.base import ProviderCapabilities
from aar.runtime.base import log_failure
from aar.runtime.checks import make_verifier
from aar.runtime.context import budget_of, offer_of
from aar.runtime.counsel import attach_child_counsel, attach_counsel, notes_for
from aar.runtime.file_watch import attach_file_watch
from aar.runtime.kept_shells import kept_shell
from aar.runtime.policy import save_rule
from aar.runtime.questions import make_ask
from aar.runtime.resilience import make_runner
from aar.runtime.web import web_settings
from aar.safety.environment import secret_values
from aar.safety.files import WorkspaceFiles
from aar.safety.policy import SafetyPolicy
from aar.tools.executor import ToolExecutor
from aar.tools.output_store import OutputStore

if TYPE_CHECKING:
    from aar.config.schema import PermissionMode
    from aar.core.coaching.files_coach import FilesCoach
    from aar.orchestration.delegate import Member
    from aar.orchestration.profiles import Profile
    from aar.runtime.agent_trees import AgentTree
    from aar.runtime.parts import Runtime
    from aar.safety.redact import Redactor
    from aar.tools.builtin.kept_shell import KeptShell

_SMALL_TOOLS = frozenset({"read_file", "write_file", "edit_file", "bash", "list_directory", "grep"})
_OF_A_PLACE = frozenset({"write_file", "edit_file", "apply_patch", "bash", "kill_shell"})
"""Tools that change things, and only where their agent works."""
_FEWEST_TOOLS = frozenset({"read_file", "write_file", "edit_file", "bash"})


def main_agent(runtime: Runtime, session: Session) -> Agent:
    """Return the agent that works for the user in ``session``."""
    policy = runtime.policy()
    if runtime.profile is not None:
        policy = policy.narrowed(runtime.profile.mode)

    def keep(rule: str, scope: Scope) -> None:
        # Not ``policy``: an agent that is made again goes on with the rules of the one before it.
        save_rule(runtime.base, agent.executor.policy.base, rule, scope)

    approvals = PermissionManager(keep)
    approver: Approver | None = approvals if runtime.interactive else None
    if approver is None and runtime.approve_with is not None:
        from aar.runtime.approve_with import ProgramApprover

        approver = ProgramApprover(runtime.approve_with, runtime.spawner, runtime.workspace, keep)
    place = runtime.extras.main_place(session, lambda: agent)
    agent = Assembly.of(runtime).agent(session, policy, approver, place, approvals=approvals)
    agent.before_end = runtime.extras.at_end(place.team)
    agent.way_on = offer_of(runtime, session, agent)
    attach_counsel(runtime, session, agent)
    attach_file_watch(agent, session)
    return agent


def child_agent(
    runtime: Runtime, session: Session, profile: Profile, agent_id: str, parent: Agent, place: Member
) -> Agent:
    """Return an agent that works for ``parent`` and may do nothing that ``parent`` may not.

    Raises:
        ConfigurationError: Its model cannot be used.
    """
    policy, tree = parent.executor.policy, cast("AgentTree | None", place.tree)
    below = Assembly(
        runtime,
        runtime.active if profile.model is None else runtime.opened.open(profile.model),
        profile,
        stricter_mode(policy.mode, profile.mode),
        parent,
        tree,
    )
    narrowed = policy.narrowed(profile.mode, workspace=None if tree is None else tree.folder)
    agent = below.agent(session, narrowed, parent.executor.approver, place, agent_id=agent_id)
    attach_child_counsel(runtime, session, agent, place, profile)
    return agent


@dataclass(frozen=True)
class _Gear:
    """What the calls of one agent work with."""

    session: Session
    tools: tuple[ToolSpec, ...]
    files: WorkspaceFiles
    outputs: OutputStore
    asked: PermissionManager | None
    shell: KeptShell | None


@dataclass(frozen=True)
class _CallableNames:
    """The names of tools that may be called; they grow with what servers and extensions bring."""

    names: frozenset[str]
    brought: Callable[[str], bool]

    def __contains__(self, name: object) -> bool:
        return name in self.names or (isinstance(name, str) and self.brought(name))


@dataclass(frozen=True)
class Assembly:
    """What one agent is made of. It stays when the runtime goes on with another model or agent.

    Attributes:
        runtime: All parts of the process.
        active: The model of the agent.
        profile: Who it is, where it is not aar's plain self.
        prompt_mode: Permission mode that its system prompt tells.
        parent: The agent that it works for; ``None``: it works for the user.
        tree: The copy of the project in which it works; ``None``: the project itself.
    """

    runtime: Runtime
    active: ActiveModel
    profile: Profile | None
    prompt_mode: PermissionMode
    parent: Agent | None = None
    tree: AgentTree | None = None

    @classmethod
    def of(cls, runtime: Runtime) -> Assembly:
        """Return what an agent for the user is made of now."""
        return cls(runtime, runtime.active, runtime.profile, runtime.prompt_mode)

    def agent(
        self,
        session: Session,
        policy: SafetyPolicy,
        approver: Approver | None,
        place: Member,
        *,
        approvals: PermissionManager | None = None,
        agent_id: str = "main",
    ) -> Agent:
        """Put the agent together."""
        runtime, parent = self.runtime, self.parent
        asked = approver if isinstance(approver, PermissionManager) else None
        tools = self.tools() if parent is None else place.tools_below(self.tools(), parent)
        tree, outputs = self.tree, OutputStore(runtime.outputs_folder(session))
        spawner = runtime.spawner if tree is None else tree.spawner
        shell = kept_shell(runtime, session, agent_id, policy.workspace, spawner)
        policy.shell_folder = None if shell is None else shell.current_folder
        gear = _Gear(session, tools, runtime.files() if tree is None else tree.files(), outputs, asked, shell)
        runner = make_runner(runtime.base, self.active, runtime.opened, asked, _trace(runtime))
        agent = Agent(
            runtime.extras.agent_config(self.profile, below=parent is not None),
            runner,
            self._executor(gear, policy, approver, place),
            lambda opened: runtime.extras.view_of(
                self.profile, agent_id, self._view_of(runner.active, opened, tools, gear.files)
            ),
            gear.files,
            approvals=approvals,
            agent_id=agent_id,
            parent_limits=lambda: None if parent is None else parent.limits,
            make_verifier=lambda: (
                make_verifier(runtime, session, agent, gear.files) if parent is None else None
            ),
            survey=runtime.survey,
            log=log_failure,
            keep_output=gear.outputs.keep,
            prepare=partial(runtime.extras.prepare, session),
            notes_model=runtime.small_models.model,
            budget=budget_of(runtime.base, session) if parent is None else parent.budget,
        )
        self._let_in(agent, session)
        return agent

    def _executor(
        self, gear: _Gear, policy: SafetyPolicy, approver: Approver | None, place: Member
    ) -> ToolExecutor:
        """Return the door through which the calls of the agent go."""
        runtime = self.runtime

        def make_context(call: ToolCall, emit: Emit) -> ToolContext:
            context = self._context(call, emit, gear)
            context.read_only = executor.policy.mode == "plan"
            context.shell = gear.shell
            context.delegate = place.for_call(call, emit)
            context.notes = notes_for(runtime, gear.session, call, lambda: executor.outside.came)
            return context

        executor = ToolExecutor(
            runtime.registry,
            policy,
            approver,
            make_context,
            sync=gear.session.sync,
            checkpointer=runtime.checkpoints(gear.session) if self.tree is None else None,
            enabled=_CallableNames(frozenset(tool.name for tool in gear.tools), self._may_use_brought),
            parallel=runtime.config.tools.parallel,
            max_calls=runtime.config.limits.tool_calls_per_step,
            max_output_chars=runtime.config.tools.max_output_chars,
            log=log_failure,
            redact=_redactor().redact_known,
        )
        executor.in_copy = self.tree is not None
        return executor

    def _let_in(self, agent: Agent, session: Session) -> None:
        """Let hooks, servers, extensions and background commands know of the agent."""
        runtime, parent = self.runtime, self.parent
        agent.hooks = agent.executor.hooks = runtime.extras.hooks(session)
        if parent is None:
            runtime.servers.paid_by(session, lambda: agent.budget)
            runtime.background.tell_to(session)
        else:
            agent.executor.outside.inherited = lambda: parent.executor.outside.came
        runtime.extras.extensions.equip(agent, session)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the model may use: those enabled, and few for a small model."""
        runtime = self.runtime
        runtime.extras.register()
        runtime.extras.extensions.settle_names()
        specs = runtime.servers.own_specs(runtime.registry, runtime.config.tools.enabled)
        specs = [spec for spec in specs if not runtime.extras.extensions.has(spec.name)]
        if self.active.capabilities.compact_prompt and runtime.config.tools.enabled is None:
            few = _FEWEST_TOOLS if _is_led(self.active.capabilities) else _SMALL_TOOLS
            specs = [spec for spec in specs if spec.name in few]
        if self.profile is not None:
            allowed = self.profile.allowed(runtime.registry, [spec.name for spec in specs])
            specs = [spec for spec in specs if spec.name in allowed]
        return tuple(spec for spec in specs if self._stays_in_copy(spec))

    def prompt(self, tools: Sequence[ToolSpec]) -> SystemPrompt:
        """Return the system prompt for these tools."""
        from aar.config.rules_files import project_rules

        runtime, capabilities = self.runtime, self.active.capabilities
        base = runtime.base
        rules = project_rules(runtime.workspace, base.cwd, config=base.paths.config, trusted=base.trusted)
        return build_prompt(
            workspace=runtime.workspace if self.tree is None else self.tree.folder,
            dialect=capabilities.dialect,
            tools=tools,
            mode=self.prompt_mode,
            compact=capabilities.compact_prompt,
            dialect_rules=_dialect_rules(capabilities, tools),
            rules=[(str(rule.path), rule.text) for rule in rules],
            custom=self._instructions(),
        )

    def _may_use(self, name: str) -> bool:
        """Tell whether the agent may use a server's tool: its profile has it, and so has who it works for."""
        mine = self.profile is None or name in self.profile.allowed(self.runtime.registry, [name])
        if self.tree is not None:
            spec = self.runtime.registry.get(name)
            mine = mine and spec is not None and self._stays_in_copy(spec)
        return mine and (self.parent is None or self.parent.executor.offers(name))

    def _stays_in_copy(self, spec: ToolSpec) -> bool:
        """Tell whether an agent in a copy of the project may have a tool: it changes nothing elsewhere."""
        if self.tree is None or spec.name in _OF_A_PLACE:
            return True
        known = not spec.name.startswith("mcp__")
        return known and not spec.side_effects & {SideEffect.WRITE, SideEffect.EXECUTE, SideEffect.EXTERNAL}

    def _may_use_brought(self, name: str) -> bool:
        """Tell whether a server or an extension has brought a tool that the agent may use."""
        runtime = self.runtime
        if runtime.servers.has(name):
            return self._may_use(name)
        return runtime.extras.extensions.lets_call(name, self._may_use_extension)

    def _may_use_extension(self, name: str) -> bool:
        """Tell the same of an extension's tool; a small model gets few tools unless they are named."""
        small = self.active.capabilities.compact_prompt and self.runtime.config.tools.enabled is None
        return not small and self._may_use(name)

    def _dressed(self, session: Session, tools: Sequence[ToolSpec]) -> SystemPrompt:
        """Return the system prompt with what extensions add to that of the main agent."""
        prompt, capabilities = self.prompt(tools), self.active.capabilities
        if self.parent is not None:
            return prompt
        facts = {
            "workspace": str(self.runtime.workspace),
            "mode": self.prompt_mode,
            "model": self.active.name,
            "dialect": capabilities.dialect,
            "tools": tuple(tool.name for tool in tools),
        }
        return self.runtime.extras.extensions.dressed(session, prompt, facts)

    def _instructions(self) -> tuple[str, str] | None:
        """Return source and text of what replaces the built-in instructions, if something does."""
        if self.profile is None:
            return self.runtime.custom_prompt
        return self.runtime.extras.instructions(
            self.profile, below=self.parent is not None, in_copy=self.tree is not None
        )

    def _view_of(
        self, active: ActiveModel, session: Session, tools: tuple[ToolSpec, ...], files: WorkspaceFiles
    ) -> SessionView:
        """Return the view of the model that answers now; it may go on for the one of the start."""
        if active is self.active:
            return self._view(session, tools, files)
        other = replace(self, active=active)
        return other._view(session, tuple(tool for tool in other.tools() if tool in tools), files)

    def _view(self, session: Session, tools: tuple[ToolSpec, ...], files: WorkspaceFiles) -> SessionView:
        model = self.runtime.config.model
        settings: dict[str, Any] = {
            "max_output_tokens": model.max_output_tokens,
            "temperature": model.temperature,
            "stop": model.stop,
            "reasoning": self.runtime.reasoning,
        }
        tools = (*tools, *self.runtime.extras.extensions.specs(self._may_use_extension))
        return SessionView(
            session,
            self.active,
            self._dressed(session, tools),
            tools,
            self._resolve_name,
            coach=self._coach(files),
            settings=settings,
            more_tools=lambda: self.runtime.servers.more_tools(self._may_use),
        )

    def _coach(self, files: WorkspaceFiles) -> FilesCoach | None:
        """Return help for a model that is too small to find its way alone."""
        capabilities = self.active.capabilities
        if capabilities.dialect != "files" and not _is_led(capabilities):
            return None
        from aar.core.coaching.files_coach import FilesCoach
        from aar.core.coaching.project_files import ProjectFiles
        from aar.core.coaching.text_coach import TextCoach

        project, budget = ProjectFiles(files), self.runtime.config.context.files_budget_tokens
        if capabilities.dialect == "files":
            return FilesCoach(project, budget)
        return TextCoach(project, budget, takes_grammar=capabilities.grammar)

    def _resolve_name(self, name: str) -> str | None:
        spec = self.runtime.registry.get(name)
        return None if spec is None else spec.name

    def _context(self, call: ToolCall, emit: Emit, gear: _Gear) -> ToolContext:
        runtime, session = self.runtime, gear.session

        def set_plan(items: Sequence[PlanItem]) -> None:
            revision = session.totals.plan_revision + 1
            emit.append(PlanEvent(items=tuple(items), revision=revision))

        def write_plan(items: Sequence[PlanItem], goal: str) -> Sequence[PlanItem]:
            from aar.runtime.plan import write

            return write(session, emit, items, goal, interactive=runtime.interactive)

        tree, spawner = self.tree, runtime.spawner
        if tree is None and runtime.spawn_for is not None:
            spawner = runtime.spawn_for(call.call_id)
        return ToolContext(
            call_id=call.call_id,
            workspace=runtime.workspace if tree is None else tree.folder,
            files=gear.files,
            spawner=spawner if tree is None else tree.spawner,
            outputs=gear.outputs,
            progress=lambda text: None,
            ask=make_ask(gear.asked, call, emit),
            plan=session.plan,
            set_plan=set_plan,
            write_plan=write_plan,
            max_output_chars=runtime.config.tools.max_output_chars,
            background=runtime.background if tree is None else tree.background,
            foreground=runtime.foreground if tree is None else None,
            settings={
                "bash.timeout": runtime.config.tools.timeout("bash", 120),
                **web_settings(runtime.config),
            },
            checkpointer=runtime.checkpoints(session) if tree is None else None,
        )


def _trace(runtime: Runtime) -> Trace | None:
    """Return what writes requests and answers into the diagnostics log, if that is wanted."""
    if "llm" not in runtime.config.log.trace:
        return None
    from aar.observability.diagnostics_log import trace

    return lambda label, text: trace("llm", label, text())


def _redactor() -> Redactor:
    """Return what takes secrets out of text: keys by form, and values that commands never see."""
    from aar.safety.redact import Redactor

    return Redactor(secret_values(os.environ))


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
