"""What users add to aar by files: agents, skills, commands and hooks, put in place for a runtime.

Files are read when the first agent is made, not at the start of the program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aar.config.front_matter import Document, markdown_files
from aar.core.agent import Agent, AgentConfig
from aar.protocol.errors import ConfigurationError
from aar.protocol.state import StopReason
from aar.runtime.extensions.in_runtime import RuntimeExtensions

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.core.view import SessionView
    from aar.extensions.command_files import CommandFile
    from aar.extensions.hooks import HookRunner
    from aar.extensions.skills import Skill
    from aar.orchestration.delegate import Member, Team
    from aar.orchestration.merge_back import WorkTree
    from aar.orchestration.profiles import Profile
    from aar.protocol.messages import ContentBlock
    from aar.protocol.tool import ToolSpec
    from aar.runtime.base import Base
    from aar.runtime.counsel import Counsel
    from aar.runtime.hooks import SessionHooks
    from aar.runtime.parts import Runtime

_REPORT = (
    "You work for another agent and do not talk to the user. Nobody sees what you say before the end. Your "
    "last message is your report: put all that was asked for into it, with file paths, and what is left."
)
_COPY = (
    "You work in a copy of the project, a git work tree that is yours alone. When you are done, what you "
    "changed in it is put into the project as one patch. You cannot commit or stash in it. Change nothing "
    "elsewhere."
)
_CHILD_STEPS = 200
_NUMBERS = {"parallel": (10, 1, 32), "depth": (2, 0, 4), "steps": (_CHILD_STEPS, 1, 10_000)}
"""``[agents]``: default, least and most of each setting."""


class Extras:
    """Agents of one runtime, and what else users add by files.

    Args:
        runtime: The runtime.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._teams: dict[str, Team] = {}
        self._hooks: dict[str, tuple[Session, SessionHooks]] = {}
        self._registered = False
        # Held while git's list of work trees, which is one file tree that git does not lock, changes.
        self.tree_lock = asyncio.Lock()
        self.extensions = RuntimeExtensions(runtime)

    # --- agents ------------------------------------------------------------------------------------------

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """All agents by name; what is wrong with a file is told at the start of a run."""
        profiles, problems = load_profiles(self._runtime.base)
        self._runtime.notices += problems
        return profiles

    @cached_property
    def counsel(self) -> Counsel:
        """Advisors, critic and router.

        Raises:
            ConfigurationError: A setting of theirs is wrong.
        """
        from aar.runtime.counsel import Counsel

        return Counsel(self._runtime)

    @cached_property
    def agent_settings(self) -> dict[str, int]:
        """``[agents]``: how many work at once, how deep they go, steps of each."""
        return agent_settings(self._runtime.config.agents)

    @cached_property
    def skills(self) -> dict[str, Skill]:
        """All skills by name."""
        skills, problems = load_skills(self._runtime.base)
        self._runtime.notices += problems
        return skills

    @cached_property
    def command_files(self) -> dict[str, CommandFile]:
        """All slash commands from files by name."""
        from aar.extensions.command_files import discover

        found, problems = discover(folders(self._runtime.base, "commands"))
        self._runtime.notices += problems
        return found

    def profile(self, name: str) -> Profile:
        """Return the agent ``name``.

        Raises:
            ConfigurationError: There is none.
        """
        found = self.profiles.get(name)
        if found is None:
            from difflib import get_close_matches

            near = get_close_matches(name, list(self.profiles), 1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(self.profiles)}."
            raise ConfigurationError(f"There is no agent {name!r}; {hint}")
        return found

    def register(self) -> None:
        """Add the tools that stand on files to the registry, once."""
        if self._registered:
            return
        self._registered = True
        for spec in self.tools():
            if spec.name not in self._runtime.registry:
                self._runtime.registry.register(spec)

    def tools(self) -> list[ToolSpec]:
        """Return the tools that stand on files: for agents and for skills."""
        specs = _tools(self.profiles, self.skills, self.agent_settings["depth"])
        return [*specs, *note_tools(self._runtime.base)]

    def team(self, session: Session) -> Team:
        """Return the agents that work in ``session``."""
        from aar.orchestration.delegate import Team
        from aar.runtime.assembly import child_agent

        team = self._teams.get(session.session_id)
        if team is None or team.session is not session:
            settings = self.agent_settings

            def make(profile: Profile, agent_id: str, parent: Agent, place: Member) -> Agent:
                return child_agent(self._runtime, session, profile, agent_id, parent, place)

            team = Team(session, self.profiles, make, settings["parallel"], settings["depth"])
            team.make_tree = self._make_tree
            self._teams[session.session_id] = team
            session.before_close.append(team.stop)
        return team

    def _make_tree(self, agent_id: str, above: WorkTree | None) -> WorkTree:
        """Prepare the work tree of an agent that is started from the project, or from another work tree."""
        from aar.runtime.agent_trees import AgentTree

        source = self._runtime.workspace if above is None else above.folder
        return AgentTree(self._runtime, source)

    def hooks(self, session: Session) -> HookRunner:
        """Return the hooks of ``session``."""
        from aar.runtime.hooks import SessionHooks, load_hooks

        kept = self._hooks.get(session.session_id)
        if kept is None or kept[0] is not session:
            hooks, edits, notices = load_hooks(self._runtime.base)
            self._runtime.notices += notices
            kept = (session, SessionHooks(self._runtime, session, hooks, edits))
            self._hooks[session.session_id] = kept
            self.extensions.begin(session, kept[1])
        return kept[1].runner

    async def prepare(
        self, session: Session, prompt: tuple[ContentBlock, ...]
    ) -> tuple[tuple[ContentBlock, ...], Sequence[str]]:
        """Wait for what a run needs from outside: extensions, then servers.

        Raises:
            McpError: A required server cannot be used.
        """
        await self.extensions.ready(session)
        return await self._runtime.servers.prepare(prompt)

    async def reload(self) -> list[str]:
        """Read agents, skills, commands, hooks and extensions again; return what went wrong.

        What a project brings counts only while it is trusted as it is now.

        Raises:
            ConfigurationError: A hook in a config file is wrong.
        """
        problems = recheck_trust(self._runtime)
        self.__dict__.pop("command_files", None)
        if "profiles" in self.__dict__:
            # Agents at work know this very table.
            profiles, told = load_profiles(self._runtime.base)
            self.profiles.clear()
            self.profiles.update(profiles)
            problems += told
        skills, told = load_skills(self._runtime.base)
        problems += told
        self.__dict__["skills"] = skills
        if self._registered:
            for spec in self.tools():
                self._runtime.registry.replace(spec)
        for _, hooks in self._hooks.values():
            problems += hooks.reload()
        return problems + await self.extensions.reload()

    def main_place(self, session: Session, agent: Callable[[], Agent]) -> Member:
        """Return the place of the main agent of ``session``."""
        from aar.orchestration.delegate import Member

        profile = self._runtime.profile
        return Member(self.team(session), 0, agent, () if profile is None else profile.handoff)

    def at_end(self, team: Team) -> Callable[[StopReason], Awaitable[None]]:
        """Return what is done when a run of the main agent ends: others end with it unless somebody waits."""

        async def ended(reason: StopReason) -> None:
            if reason is StopReason.CANCELLED or not self._runtime.interactive:
                await team.stop()

        return ended

    def agent_config(self, profile: Profile | None, *, below: bool) -> AgentConfig:
        """Return limits and settings of an agent; ``below``: it works for another."""
        config = AgentConfig.from_config(self._runtime.config)
        if profile is None:
            return config
        limits = config.limits
        most = self.agent_settings["steps"] if below else limits.steps
        steps = min(limits.steps, profile.max_steps or most)
        usd = min((value for value in (limits.usd, profile.max_cost) if value), default=0.0)
        return replace(config, limits=limits.model_copy(update={"steps": steps, "usd": usd}))

    def view_of(self, profile: Profile | None, agent_id: str, view: SessionView) -> SessionView:
        """Return how the model of an agent sees the session."""
        if profile is None:
            return view if agent_id == "main" else replace(view, agent_id=agent_id)
        own = {"temperature": profile.temperature, "stop": profile.stop, "reasoning": profile.reasoning}
        settings = {name: value for name, value in own.items() if value not in (None, ())}
        return replace(view, agent_id=agent_id, settings={**view.settings, **settings})

    def instructions(self, profile: Profile, *, below: bool, in_copy: bool = False) -> tuple[str, str]:
        """Return source and text of an agent's instructions."""
        from aar.core.prompt import TOOLS_GUIDANCE

        parts = [profile.prompt, *([_REPORT] if below else []), *([_COPY] if in_copy else []), TOOLS_GUIDANCE]
        return profile.source, "\n\n".join(parts)


def file_tools(base: Base) -> list[ToolSpec]:
    """Return the tools that stand on files, without a runtime."""
    specs = _tools(load_profiles(base)[0], load_skills(base)[0], agent_settings(base.config.agents)["depth"])
    return [*specs, *note_tools(base)]


def note_tools(base: Base) -> list[ToolSpec]:
    """Return the tools for notes, where the settings want notes."""
    if not base.config.memory.enabled:
        return []
    from aar.tools.builtin import notes

    specs = notes.tools()
    return specs if base.config.memory.write != "off" else specs[:2]


def _tools(profiles: dict[str, Profile], skills: dict[str, Skill], depth: int) -> list[ToolSpec]:
    from aar.extensions import skills as skill_tools
    from aar.orchestration import task_tools

    agents = task_tools.tools(profiles) if depth else []
    return [*agents, *skill_tools.tools(skills)]


def recheck_trust(runtime: Runtime) -> list[str]:
    """Take the project's things out of use where they are not as they were trusted; say so."""
    from aar.config.trust import TrustStore

    base = runtime.base
    if not base.trusted or TrustStore(base.paths).is_trusted(base.workspace):
        return []
    runtime.base = replace(base, trusted=False)
    return [
        "The project's config, rules, hooks or extensions changed since you trusted them, so they are not "
        "used any more. Look at them, then start aar with --trust."
    ]


def load_profiles(base: Base) -> tuple[dict[str, Profile], list[str]]:
    """Return all agents by name, and a sentence for each file that is wrong. Later folders win."""
    from aar.orchestration.profiles import BUILT_IN, merged, profile_of

    found: list[Profile] = []
    problems: list[str] = []
    for document in _documents(base, "agents"):
        profile = profile_of(document)
        if isinstance(profile, str):
            problems.append(profile)
        else:
            found.append(profile)
    return merged(BUILT_IN, found), problems


def load_skills(base: Base) -> tuple[dict[str, Skill], list[str]]:
    """Return all skills by name, and a sentence for each that is wrong. Later folders win."""
    from aar.extensions.skills import discover

    return discover(folders(base, "skills", shared=True))


def folders(base: Base, kind: str, *, shared: bool = False) -> list[tuple[Path, Path | None]]:
    """Return the folders of user and project that may hold ``kind``, the strongest last.

    With each comes the folder that its files must lie in, links followed; ``None``: anywhere.

    Args:
        base: Folders and trust.
        kind: ``agents``, ``skills`` or ``commands``.
        shared: Whether ``.agents`` counts too.
    """
    home = Path.home()
    found: list[tuple[Path, Path | None]] = [(home / ".claude" / kind, None)]
    if shared:
        found.append((home / ".agents" / kind, None))
    found.append((base.paths.config / kind, None))
    if base.trusted:
        root = base.workspace
        names = (".claude", ".agents", ".aar") if shared else (".claude", ".aar")
        found += [(root / name / kind, root) for name in names]
    return found


def _documents(base: Base, kind: str) -> list[Document]:
    return [
        document
        for folder, inside in folders(base, kind)
        for document in markdown_files(folder, inside=inside)
        if document.path.name.lower() != "readme.md"
    ]


def agent_settings(table: dict[str, Any]) -> dict[str, int]:
    """Return the numbers of ``[agents]``.

    Raises:
        ConfigurationError: One is not what it should be.
    """
    settings: dict[str, int] = {}
    for name, (default, least, most) in _NUMBERS.items():
        value = table.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigurationError(f"[agents] {name} must be a whole number from {least} to {most}.")
        settings[name] = value
    return settings
