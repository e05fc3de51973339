"""What a runtime does with extensions: it loads them and lets them into its sessions and agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from aar.protocol.errors import StorageError
from aar.protocol.events import Notice, PromptLayer
from aar.runtime.base import log_failure
from aar.runtime.extensions.loading import KEPT, make_manager, manager_of

if TYPE_CHECKING:
    from aar.core.agent import Agent
    from aar.core.prompt import SystemPrompt
    from aar.core.session import Session
    from aar.extensions.api_parts import PartName
    from aar.extensions.in_session import ExtensionsInSession
    from aar.extensions.manager import Extension, ExtensionManager
    from aar.protocol.panel import Panel
    from aar.protocol.tool import ToolSpec
    from aar.runtime.hooks import SessionHooks
    from aar.runtime.parts import Runtime


@dataclass
class _Joined:
    """A session in which extensions take part."""

    session: Session
    hooks: SessionHooks
    here: ExtensionsInSession | None = None
    manager: ExtensionManager | None = None
    agents: WeakSet[Agent] = field(default_factory=lambda: WeakSet["Agent"]())


class RuntimeExtensions:
    """What a runtime does with extensions.

    Args:
        runtime: The runtime.

    Attributes:
        on_loaded: Called when extensions were loaded or reloaded; must be short.
        on_panels: Called when panels changed; must be short.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.on_loaded: list[Callable[[], None]] = []
        self.on_panels: list[Callable[[], None]] = []
        self._joined: dict[str, _Joined] = {}
        self._specs: dict[str, ToolSpec] = {}
        self._told: list[str] = []
        self._registered_of: ExtensionManager | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def manager(self) -> ExtensionManager:
        """The extensions of this runtime."""
        return manager_of(self._runtime.base)

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """Those that were loaded so far."""
        return self.manager.loaded if self.manager.done.done() else ()

    # --- joining sessions --------------------------------------------------------------------------------

    def begin(self, session: Session, hooks: SessionHooks) -> None:
        """Load extensions in the background, and let them into ``session`` once they are there."""
        joined = self._joined.get(session.session_id)
        if joined is None or joined.session is not session:
            self._joined[session.session_id] = _Joined(session, hooks)
        self.manager.begin()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if joined is None or joined.session is not session:
            task = loop.create_task(self.ready(session))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def ready(self, session: Session) -> None:
        """Wait until extensions are loaded and take part in ``session``; tell there what went wrong."""
        manager = self.manager
        if not manager.done.done():
            await asyncio.shield(asyncio.wrap_future(manager.done))
        self._register(manager)
        joined = self._joined.get(session.session_id)
        if joined is None or joined.session is not session or joined.manager is manager:
            return
        joined.manager = manager
        for problem in manager.problems:
            self.tell(session, problem)
        if manager.loaded:
            self._join(joined, manager)
            _call_all(self.on_loaded)

    def tell(self, session: Session, message: str) -> None:
        """Tell the user in ``session``, each sentence once."""
        if message in self._told:
            return
        self._told.append(message)
        try:
            session.append(Notice(level="warning", code="extension", message=message))
        except StorageError:
            return

    def _join(self, joined: _Joined, manager: ExtensionManager) -> None:
        from aar.extensions.in_session import ExtensionsInSession, Facts
        from aar.extensions.replaced import PromptParts

        runtime = self._runtime
        facts = Facts(
            joined.session,
            runtime.workspace,
            lambda: runtime.mode,
            runtime.wall,
            lambda: runtime.active.name,
            runtime.config.extensions.hook_seconds,
            log_failure,
            self._changed,
        )
        here = joined.here = ExtensionsInSession(facts, manager.loaded)
        listeners = here.listeners()
        planner, memory = manager.part("planner"), manager.part("memory")
        if planner is not None or memory is not None:
            listeners.append(("prompt_submit", PromptParts(here, planner, memory).heard))
        joined.hooks.take_listeners(listeners)
        for agent in joined.agents:
            self._equip(agent, joined)

    def _changed(self) -> None:
        _call_all(self.on_panels)

    # --- agents ------------------------------------------------------------------------------------------

    def equip(self, agent: Agent, session: Session) -> None:
        """Let the parts that extensions replaced work in ``agent``, now or once they are loaded."""
        joined = self._joined.get(session.session_id)
        if joined is not None:
            joined.agents.add(agent)
            self._equip(agent, joined)

    def _equip(self, agent: Agent, joined: _Joined) -> None:
        here, manager = joined.here, joined.manager
        if here is None or manager is None:
            return
        from aar.extensions.replaced import ReplacedCallHandler, ReplacedGuardrails

        guardrails, handler = manager.part("guardrails"), manager.part("call_handler")
        if guardrails is not None:
            owner, make = guardrails
            agent.make_guardrails = lambda config: ReplacedGuardrails(owner, make, config, here.failed)
        if handler is not None:
            owner, part = handler
            agent.executor.around = ReplacedCallHandler(owner, part, here.failed, here.facts.hook_s)

    def dressed(self, session: Session, prompt: SystemPrompt, facts: Mapping[str, Any]) -> SystemPrompt:
        """Return a system prompt with what extensions add to it, or make of it."""
        joined = self._joined.get(session.session_id)
        if joined is None or joined.here is None or joined.manager is None:
            return prompt
        prompt = with_layers(joined.manager, prompt)
        builder = joined.manager.part("prompt_builder")
        if builder is None:
            return prompt
        from aar.extensions.replaced import rebuilt_prompt

        return rebuilt_prompt(*builder, prompt, facts, joined.here.failed)

    # --- tools -------------------------------------------------------------------------------------------

    def _register(self, manager: ExtensionManager) -> None:
        """Put the tools of extensions into the registry, once; names that are taken stay as they are."""
        if self._registered_of is manager:
            return
        from aar.runtime.extensions.themes import themes_folder, write_themes
        from aar.runtime.extensions.tools import caller_of

        self._registered_of = manager
        registry = self._runtime.registry
        for extension in manager.loaded:
            for tool in extension.registered.tools:
                if tool.name in registry or tool.name.startswith("mcp_"):
                    whose = f"The tool {tool.name} of the extension {extension.name}"
                    manager.problems.append(f"{whose} is left out: aar has one of that name.")
                    continue
                spec = tool.spec(caller_of(extension), self._judge)
                registry.register(spec)
                self._specs[spec.name] = spec
        if manager.loaded or themes_folder(self._runtime.base).exists():
            write_themes(self._runtime.base, manager)

    def _judge(self, what: str, subject: str) -> str | None:
        """Tell why policy does not let a tool do something that its call did not name."""
        policy = self._runtime.policy()
        if what == "command":
            decision = policy.check_command(subject)
            by_rule = decision.decision == "ask" and decision.rule is not None
            refused = decision.decision == "deny" or decision.hard_stop or by_rule
            return "; ".join(decision.reasons) or "the rules do not allow this command" if refused else None
        path = self._runtime.files().resolve(subject)
        verdict = policy.path("read" if what == "read" else "write", path)
        if verdict.decision == "deny" or (verdict.decision == "ask" and verdict.by == "policy"):
            return "; ".join(verdict.reasons) or f"the rules do not allow it for {subject}"
        return None

    def has(self, name: str) -> bool:
        """Tell whether a tool comes from an extension."""
        return name in self._specs

    def specs(self, allowed: Callable[[str], bool]) -> tuple[ToolSpec, ...]:
        """Return the tools of extensions that the settings and ``allowed`` let through."""
        return tuple(spec for spec in self._specs.values() if self.lets_call(spec.name, allowed))

    def lets_call(self, name: str, allowed: Callable[[str], bool]) -> bool:
        """Tell whether a tool comes from an extension, and the settings and ``allowed`` let it through."""
        enabled = self._runtime.config.tools.enabled
        return name in self._specs and (enabled is None or name in enabled) and allowed(name)

    def replaces(self, part: PartName) -> bool:
        """Tell whether an extension that was loaded replaces a part."""
        return self._registered_of is not None and self._registered_of.part(part) is not None

    def shown(
        self, tools: tuple[ToolSpec, ...], prompt: Callable[[tuple[ToolSpec, ...]], SystemPrompt]
    ) -> tuple[tuple[ToolSpec, ...], SystemPrompt]:
        """Return tools and prompt with what extensions add to them, outside of a session."""
        self.manager.wait()
        self._register(self.manager)
        tools = (*tools, *self.specs(lambda name: True))
        return tools, with_layers(self.manager, prompt(tools))

    def settle_names(self) -> None:
        """Load extensions now where ``[tools] enabled`` names a tool that only they may have."""
        enabled = self._runtime.config.tools.enabled or ()
        registry = self._runtime.registry
        if any(not name.startswith("mcp_") and name not in registry for name in enabled):
            self.manager.wait()
            self._register(self.manager)

    # --- panels ------------------------------------------------------------------------------------------

    def here(self, session: Session) -> ExtensionsInSession | None:
        """Return the extensions that take part in ``session``; ``None``: none do, or not yet."""
        joined = self._joined.get(session.session_id)
        return None if joined is None else joined.here

    def panels(self, session: Session) -> tuple[Panel, ...]:
        """Return the panels of ``session`` as they are now."""
        here = self.here(session)
        return () if here is None else here.panels

    # --- its life ----------------------------------------------------------------------------------------

    async def reload(self) -> list[str]:
        """Put all extensions away and load them anew; return what went wrong."""
        old = self.manager
        for joined in self._joined.values():
            if joined.here is not None:
                await joined.here.aclose()
            joined.hooks.take_listeners(())
            joined.here = joined.manager = None
            for agent in joined.agents:
                agent.make_guardrails = None
                agent.executor.around = None
        for name in self._specs:
            self._runtime.registry.remove(name)
        self._specs.clear()
        self._told.clear()
        self._registered_of = None
        await asyncio.to_thread(old.close)
        manager = self._runtime.base.kept[KEPT] = make_manager(self._runtime.base)
        for joined in tuple(self._joined.values()):
            await self.ready(joined.session)
        _call_all(self.on_loaded)
        _call_all(self.on_panels)
        return list(manager.problems)

    async def aclose(self) -> None:
        """Put all extensions away."""
        for task in tuple(self._tasks):
            task.cancel()
        manager: ExtensionManager | None = self._runtime.base.kept.pop(KEPT, None)
        if manager is not None:
            await asyncio.to_thread(manager.close)


def with_layers(manager: ExtensionManager, prompt: SystemPrompt) -> SystemPrompt:
    """Return a system prompt with the additions of extensions at its end."""
    layers = tuple(
        PromptLayer(name="extension", source=f"{extension.name}: {name}", text=text)
        for extension in manager.loaded
        for name, text in extension.registered.prompts
    )
    return replace(prompt, layers=(*prompt.layers, *layers)) if layers else prompt


def _call_all(listeners: list[Callable[[], None]]) -> None:
    for listener in tuple(listeners):
        listener()
