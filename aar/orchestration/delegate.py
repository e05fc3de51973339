"""Agents that work for another agent: who may start whom, how many at once, and what comes back.

A child has a conversation, tools and limits of its own; its events lie in the session of its parent under
its own agent id. What it uses counts for its parent, and it can do nothing that its parent may not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, Protocol

from aar.core.agent import Agent, RunResult
from aar.core.session import Session
from aar.orchestration.profiles import Profile
from aar.orchestration.reports import outcome
from aar.orchestration.turns import NotBegunError, Turns
from aar.protocol.errors import AarError, StorageError, ToolCategory, ToolFailure
from aar.protocol.events import ContextEvent, Notice, Subagent, ToolCall
from aar.protocol.ids import new_id
from aar.protocol.messages import TextBlock
from aar.protocol.ports import Emit
from aar.protocol.state import StopReason
from aar.protocol.tool import ToolOutcome, ToolSpec

if TYPE_CHECKING:
    from aar.orchestration.merge_back import Merge, WorkTree

MAX_PARALLEL = 32
MAX_DEPTH = 4
MAX_CHILDREN = 200
"""Agents that one process starts in one session."""
_TASK_CHARS = 200
_NOT_BELOW = frozenset({"todo", "plan"})
"""Tools that stand for the user's view of the work; only the main agent has them."""


class MakeAgent(Protocol):
    """Builds the agent of a child."""

    def __call__(self, profile: Profile, agent_id: str, parent: Agent, place: Member) -> Agent:
        """Return an agent that can do what both ``profile`` and ``parent`` may.

        Raises:
            AarError: Its model cannot be used.
        """
        ...


@dataclass
class Child:
    """An agent that works, or has worked, for another.

    Attributes:
        agent_id: Its id in the session.
        profile: Who it is.
        title: What it does, in a few words.
        agent: The agent.
        depth: 1 for a child of the main agent.
        call_id: Id of the event that asked for it; ``None``: no call did.
        task: Runs it, where it works in the background.
        result: How its last run ended.
        collected: Whether its report was handed over.
        attended: Whether somebody waits for its work, or for its turn.
        tree: The copy of the project in which it works; ``None``: it works where its parent does.
        merge: What became of its changes there.
    """

    agent_id: str
    profile: Profile
    title: str
    agent: Agent
    depth: int
    call_id: str | None = None
    task: asyncio.Task[ToolOutcome] | None = None
    result: RunResult | None = None
    collected: bool = False
    attended: bool = False
    tree: WorkTree | None = None
    merge: Merge | None = None

    def event(self, action: Literal["start", "end"], **fields: object) -> Subagent:
        """Return the event that tells of its beginning or end."""
        return Subagent.model_validate(
            {
                "action": action,
                "profile": self.profile.name,
                "task": self.title,
                "work_tree": None if self.tree is None else str(self.tree.folder),
                "agent_id": self.agent_id,
                "parent_id": self.call_id,
                **fields,
            }
        )


@dataclass
class Team:
    """All agents that work in one session besides the main one.

    Attributes:
        session: Theirs.
        profiles: The agents that can be started, by name.
        make: Builds one.
        parallel: How many of one depth work at once; others wait for their turn.
        depth: How deep agents start agents; 0: none may be started.
        children: All that were started here, by id.
        make_tree: Prepares the copy of the project for one of them; ``None``: there are no copies here.
        merging: Held while changes of a copy are put into the project.
    """

    session: Session
    profiles: Mapping[str, Profile]
    make: MakeAgent
    parallel: int = 10
    depth: int = 2
    children: dict[str, Child] = field(default_factory=dict[str, Child])
    make_tree: Callable[[str, WorkTree | None], WorkTree] | None = None
    merging: asyncio.Lock = field(default_factory=asyncio.Lock)
    _turns: dict[int, Turns] = field(default_factory=dict[int, Turns])

    def turns(self, depth: int) -> Turns:
        """Return the places for agents of ``depth``, for each depth its own: parents block no children."""
        found = self._turns.get(depth)
        if found is None:
            found = self._turns[depth] = Turns(self.parallel)
        return found

    def queued(self, child: Child) -> int | None:
        """Return how many wait before an agent that begins now; ``None``: there is a place for it."""
        others = (
            one
            for one in self.children.values()
            if one is not child and one.depth == child.depth and (one.attended or _waits(one))
        )
        waiting = sum(1 for _ in others) - self.parallel
        return waiting if waiting >= 0 else None

    def state(self, child: Child) -> str:
        """Return in a word or two whether an agent works, waits for its turn, or how it ended."""
        ahead = self.turns(child.depth).ahead_of(child.agent_id)
        if ahead is not None:
            return f"waits, {ahead} before it" if ahead else "waits, the next"
        if child.agent.running or _waits(child):
            return "works"
        if child.result is None:
            return "ended"
        reason = child.result.stop_reason
        return "done" if reason in (StopReason.END_TURN, StopReason.VERIFIED) else str(reason)

    @property
    def working(self) -> list[Child]:
        """Those that work now or wait for their turn."""
        return [
            child
            for child in self.children.values()
            if child.agent.running
            or _waits(child)
            or self.turns(child.depth).ahead_of(child.agent_id) is not None
        ]

    def cancel(self, agent_id: str) -> bool:
        """Stop one agent at once; tell whether it worked."""
        child = self.children.get(agent_id)
        if child is None or child not in self.working:
            return False
        child.agent.cancel()
        if child.task is not None and not child.agent.running:
            child.task.cancel()
        else:
            self.turns(child.depth).send_away(agent_id)
        return True

    def steer(self, agent_id: str, text: str) -> bool:
        """Say something to an agent that works; tell whether it does."""
        child = self.children.get(agent_id)
        if child is None or child not in self.working:
            return False
        child.agent.steer(text)
        return True

    async def stop(self) -> None:
        """End all that works in the background, and wait for it."""
        tasks = [child.task for child in self.children.values() if _waits(child) and child.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)


def _waits(child: Child) -> bool:
    return child.task is not None and not child.task.done()


@dataclass(frozen=True)
class Member:
    """The place of one agent in a team: from here it starts its own children.

    Attributes:
        team: The team.
        depth: 0 for the main agent.
        parent: Returns the agent at this place.
        may_start: Names of the only agents that may be started from here; empty: all.
        tree: The copy of the project in which the agent here works; ``None``: the project itself.
    """

    team: Team
    depth: int
    parent: Callable[[], Agent]
    may_start: tuple[str, ...] = ()
    tree: WorkTree | None = None

    @property
    def may_delegate(self) -> bool:
        """Whether an agent here may start others."""
        return self.depth < self.team.depth

    def tools_below(self, tools: Sequence[ToolSpec], parent: Agent) -> tuple[ToolSpec, ...]:
        """Return what of ``tools`` an agent here gets: nothing that its parent has not."""
        return tuple(
            spec
            for spec in tools
            if spec.name not in _NOT_BELOW
            and parent.executor.offers(spec.name)
            and (self.may_delegate or spec.name not in ("task", "task_result"))
        )

    def for_call(self, call: ToolCall, emit: Emit) -> Delegation:
        """Return what the call may use."""
        return Delegation(self, call, emit)

    def hire(
        self,
        profile: Profile,
        agent_id: str,
        title: str,
        call_id: str | None = None,
        *,
        tree: WorkTree | None = None,
    ) -> Child:
        """Return a new agent that works for the one here, in ``tree`` if it gets a copy of the project.

        Raises:
            AarError: Its model cannot be used.
        """
        made: list[Agent] = []
        below = Member(self.team, self.depth + 1, lambda: made[0], profile.handoff, tree or self.tree)
        made.append(self.team.make(profile, agent_id, self.parent(), below))
        words = " ".join(title.split())[:_TASK_CHARS]
        child = Child(agent_id, profile, words, made[0], below.depth, call_id, tree=tree)
        self.team.children[agent_id] = child
        return child

    async def attend(self, child: Child, emit: Emit, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """Let a child do ``work`` when its turn comes; what it used counts for the run of its parent.

        Raises:
            NotBegunError: It was stopped before its turn came.
        """
        reason, report, parent = StopReason.CANCELLED, None, self.parent()
        child.attended = True
        try:
            async with self.team.turns(child.depth).turn(child.agent_id):
                result = await work()
            reason, report = result.stop_reason, result.text
            child.result = result
            parent.include(result)
        finally:
            child.attended = False
            # The session may be closed, when aar ends in the middle of the work.
            with suppress(StorageError):
                emit.append(child.event("end", result=report, stop_reason=reason))
        if child.agent.executor.outside.came:
            parent.executor.outside.mark()
        return result


@dataclass(frozen=True)
class Delegation:
    """The `aar.protocol.ports.Delegate` of one tool call."""

    member: Member
    call: ToolCall
    emit: Emit

    async def start(
        self,
        agent: str,
        prompt: str,
        *,
        title: str = "",
        background: bool = False,
        resume: str | None = None,
        worktree: bool | None = None,
    ) -> ToolOutcome:
        """Give a task to an agent; see `aar.protocol.ports.Delegate.start`."""
        child = self._child(agent, title or prompt, resume, worktree)
        self.emit.append(child.event("start", queued=self.member.team.queued(child)))
        if not background:
            return await self._work(child, prompt)
        child.task = asyncio.get_running_loop().create_task(self._in_background(child, prompt))
        return ToolOutcome(
            f"The agent {child.agent_id} works in the background. Go on with other work; its report comes to "
            f"you when it is done, and task_result with agent_id {child.agent_id} waits for it."
        )

    async def employ(
        self, profile: Profile, prompt: str, title: str, *, agent_id: str | None = None
    ) -> tuple[Child, ToolOutcome]:
        """Let an agent be ``profile`` and do ``prompt``; return it with its report.

        Args:
            profile: Who it is; it need not be one of the team's.
            prompt: The whole task.
            title: The task in a few words.
            agent_id: Of one that worked before and goes on with its conversation.

        Raises:
            ToolFailure: No agent may be started here, or its model cannot be used.
        """
        if not self.member.may_delegate:
            raise ToolFailure(ToolCategory.BLOCKED, "Agents may not be started here ([agents] depth is 0).")
        child = self._made(profile, agent_id or f"{profile.name}-{new_id()[-6:].lower()}", title)
        self.emit.append(child.event("start", queued=self.member.team.queued(child)))
        return child, await self._work(child, prompt)

    def _child(self, name: str, title: str, resume: str | None, worktree: bool | None) -> Child:
        team = self.member.team
        if not self.member.may_delegate:
            raise ToolFailure(
                ToolCategory.BLOCKED, "Agents at this depth may not start others. Do the work yourself."
            )
        if resume is not None:
            return self._earlier(resume, worktree)
        profile = self._profile(name)
        if len(team.children) >= MAX_CHILDREN:
            raise ToolFailure(
                ToolCategory.BLOCKED,
                f"This session has started {MAX_CHILDREN} agents already; do the rest yourself.",
            )
        agent_id = f"{profile.name}-{new_id()[-6:].lower()}"
        return self._made(profile, agent_id, title, worktree=worktree)

    def _made(
        self,
        profile: Profile,
        agent_id: str,
        title: str,
        *,
        worktree: bool | None = None,
        tree: WorkTree | None = None,
    ) -> Child:
        make = self.member.team.make_tree
        try:
            if tree is None and make is not None and (profile.worktree if worktree is None else worktree):
                tree = make(agent_id, self.member.tree)
            return self.member.hire(profile, agent_id, title, self.call.id or None, tree=tree)
        except AarError as error:
            raise ToolFailure(
                ToolCategory.EXCEPTION, f"The agent {profile.name} cannot work: {error}"
            ) from error

    def _profile(self, name: str) -> Profile:
        profiles, only = self.member.team.profiles, self.member.may_start
        if only:
            profiles = {key: profile for key, profile in profiles.items() if key in only}
        profile = profiles.get(name) or profiles.get(name.strip().lower())
        if profile is None and name in ("general-purpose", "general", ""):
            profile = profiles.get("coder")
        if profile is None:
            near = get_close_matches(name, list(profiles), 1)
            there = ", ".join(profiles) or "none"
            if only and name in self.member.team.profiles:
                raise ToolFailure(ToolCategory.BLOCKED, f"You may not give work to {name}, only to: {there}.")
            hint = f"Did you mean {near[0]}?" if near else f"There are: {there}."
            raise ToolFailure(ToolCategory.NOT_FOUND, f"There is no agent {name!r}. {hint}")
        return profile

    def _earlier(self, agent_id: str, worktree: bool | None) -> Child:
        """Return an agent that worked before, with its conversation."""
        team = self.member.team
        child = team.children.get(agent_id)
        if child is not None:
            if child in team.working:
                raise ToolFailure(
                    ToolCategory.BLOCKED, f"The agent {agent_id} still works; wait with task_result."
                )
            if child.depth != self.member.depth + 1:
                raise ToolFailure(ToolCategory.BLOCKED, f"The agent {agent_id} belongs to another agent.")
            # Made anew, because its parent may be allowed less than when it was made.
            kept = child.tree if child.merge is not None and child.merge.kept else None
            again = child.tree is not None if worktree is None else worktree
            return self._made(child.profile, agent_id, child.title, worktree=again, tree=kept)
        for event in team.session.events():
            if isinstance(event, Subagent) and event.agent_id == agent_id and event.action == "start":
                again = event.work_tree is not None if worktree is None else worktree
                return self._made(self._profile(event.profile), agent_id, event.task, worktree=again)
        raise ToolFailure(ToolCategory.NOT_FOUND, f"There is no agent {agent_id!r} to go on with.")

    async def _work(self, child: Child, prompt: str) -> ToolOutcome:
        """Run a child to its end, when its turn comes."""
        session = self.member.team.session
        try:
            if child.tree is None:
                result = await self.member.attend(child, self.emit, lambda: child.agent.run(prompt, session))
                return outcome(child.agent_id, result)
            tree = child.tree
            result = await self.member.attend(child, self.emit, lambda: self._in_tree(child, tree, prompt))
        except NotBegunError as error:
            raise ToolFailure(ToolCategory.CANCELLED, str(error)) from error
        return outcome(child.agent_id, result, "" if child.merge is None else child.merge.told)

    async def _in_tree(self, child: Child, tree: WorkTree, prompt: str) -> RunResult:
        """Run a child in its copy of the project, and put what it changed there into the project."""
        from aar.orchestration.merge_back import Merger

        team = self.member.team
        merger = Merger(team.session, self.member.parent().executor, self.call.run_id, team.merging)
        child.merge = None
        try:
            await tree.open()
            result = await child.agent.run(prompt, team.session)
            child.merge = await merger.merge(child.agent_id, tree, result)
            return replace(result, file_changes=child.merge.file_changes, diffs=child.merge.diffs)
        except AarError as error:
            raise ToolFailure(ToolCategory.EXCEPTION, f"The work tree failed: {error}") from error
        finally:
            await self._leave(child, tree)

    async def _leave(self, child: Child, tree: WorkTree) -> None:
        """Remove a copy of the project, unless it holds work that is nowhere else."""
        await tree.rest()
        if child.merge is None:
            from aar.orchestration.merge_back import Merge

            # It was cancelled or failed: what it did until then is not lost.
            try:
                kept = bool((await tree.changes()).patch)
            except AarError:
                kept = tree.folder.exists()
            child.merge = Merge("", kept=kept)
        if not child.merge.kept:
            await tree.remove()
            return
        message = (
            f"The changes of {child.agent_id} are kept in the work tree {tree.folder}: `git -C {tree.folder} "
            f"diff HEAD` shows them, `git worktree remove --force {tree.folder}` removes them."
        )
        with suppress(StorageError):
            self.emit.append(Notice(level="warning", code="work_tree", message=message))

    async def _in_background(self, child: Child, prompt: str) -> ToolOutcome:
        done = await self._work(child, prompt)
        if not child.collected:
            text = f"The agent {child.agent_id} is done.\n{done.output}"
            with suppress(StorageError):
                self.emit.append(
                    ContextEvent(
                        source="subagent",
                        label=child.agent_id,
                        content=(TextBlock(text=text),),
                        trusted=False,
                    )
                )
        return done

    async def collect(self, agent_id: str, *, wait_s: float, stop: bool) -> ToolOutcome:
        """Return a report; see `aar.protocol.ports.Delegate.collect`."""
        child = self.member.team.children.get(agent_id)
        if child is None or child.task is None:
            known = [item.agent_id for item in self.member.team.children.values() if item.task is not None]
            hint = f"There are: {', '.join(known)}." if known else "None was started in the background."
            raise ToolFailure(
                ToolCategory.NOT_FOUND, f"No agent {agent_id!r} works in the background. {hint}"
            )
        if stop:
            self.member.team.cancel(agent_id)
        # Set before the wait, so that the report does not come twice.
        child.collected = True
        done, _ = await asyncio.wait({child.task}, timeout=10 if stop else wait_s)
        if not done:
            child.collected = False
            return ToolOutcome(f"The agent {agent_id} still works.")
        if child.task.cancelled():
            return ToolOutcome(f"The agent {agent_id} was stopped before it had a report.")
        return child.task.result()
