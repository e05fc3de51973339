"""What stands beside a prompt and an answer: notes that fit, advisors, a critic, a router.

All but the notes are off unless they are asked for, because they cost tokens. The parts are imported when
they are first needed: most runs need none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aar.protocol.errors import AarError
from aar.protocol.events import Event, Notice, ToolCall
from aar.protocol.messages import ResourceBlock, TextBlock

if TYPE_CHECKING:
    from aar.core.agent import Agent
    from aar.core.run_record import RunRecord
    from aar.core.session import Session
    from aar.orchestration.critic import CriticSettings
    from aar.orchestration.delegate import Member
    from aar.orchestration.profiles import Profile
    from aar.orchestration.router import Choice
    from aar.protocol.notes import NoteKeeper
    from aar.runtime.notes import SessionNotes
    from aar.runtime.parts import Runtime

SAID_CHARS = 12_000
"""Of the conversation that those who advise are shown."""


class Counsel:
    """What the user wants beside prompts and answers; it may change while the session lives.

    Args:
        runtime: Settings (``[agents] advisors critic routes router``) and agents.

    Attributes:
        advisors: Agents that are asked before each turn.
        critic: Who judges answers; ``None``: nobody.
        routing: Whether the router acts; a person who chooses an agent or model turns it off.

    Raises:
        ConfigurationError: A setting is wrong.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        table: dict[str, Any] = runtime.config.agents
        self.advisors: tuple[str, ...] = ()
        self.critic: CriticSettings | None = None
        self._configured: CriticSettings | None = None
        self.routing = bool(table.get("routes")) or table.get("router") is True
        if table.get("advisors"):
            from aar.orchestration.advisors import advisor_names

            self.advisors = advisor_names(table["advisors"], runtime.extras.profiles)
        if table.get("routes"):
            from aar.orchestration.router import routes_of

            routes_of(table["routes"], runtime.extras.profiles)
        if table.get("critic"):
            from aar.orchestration.critic import critic_settings

            self.critic = self._configured = critic_settings(table["critic"])

    def advisors_of(self, profile: Profile | None, *, below: bool) -> list[Profile]:
        """Return who advises an agent: those its file names, and for the user's agent those wanted here.

        Args:
            profile: The agent; ``None``: aar's plain self.
            below: Whether it works for another agent.

        Raises:
            ConfigurationError: Its file names somebody that there is not, or too many are asked.
        """
        names = () if below else self.advisors
        if profile is not None:
            names = tuple(dict.fromkeys((*names, *profile.advisors)))
        if not names:
            return []
        from aar.orchestration.advisors import advisor_names

        profiles = self._runtime.extras.profiles
        return [profiles[name] for name in advisor_names(names, profiles)]

    def critic_of(self, profile: Profile | None, *, below: bool) -> CriticSettings | None:
        """Return who judges the answers of an agent; see `advisors_of`.

        What the user said in the session counts for more than an agent's file, and that for more than
        the settings.
        """
        wish = None if profile is None else profile.critic
        if wish is None:
            return None if below else self.critic
        if not below and self.critic is not self._configured:
            return self.critic
        if not wish:
            return None
        from aar.orchestration.critic import CriticSettings

        return self._configured or CriticSettings(rounds=1)

    async def route(self, prompt: str, session: Session) -> Choice | None:
        """Return who takes a prompt; ``None``: whoever works.

        The rules come first. The small model is asked only with ``[agents] router = true``.

        Raises:
            AarError: A rule is wrong, or the small model gave no answer.
        """
        from aar.orchestration.router import by_answer, by_rule, routes_of, routing_question

        runtime = self._runtime
        profiles = runtime.extras.profiles
        table: dict[str, Any] = runtime.config.agents
        choice = by_rule(routes_of(table.get("routes"), profiles), prompt)
        if choice is not None or table.get("router") is not True:
            return choice
        answer = await ask_small(
            runtime, session, routing_question(prompt, profiles), "router", max_tokens=30
        )
        return by_answer(answer, profiles)


async def ask_small(
    runtime: Runtime, session: Session, question: str, name: str, *, system: str = "", max_tokens: int = 800
) -> str:
    """Ask the small model (the main one where there is none); its cost counts in the session and the day.

    Args:
        runtime: All parts.
        session: Which pays.
        question: For the model.
        name: Agent id under which the cost is stored.
        system: System prompt.
        max_tokens: Of the answer.

    Raises:
        AarError: There was no answer.
    """
    from aar.runtime.context import budget_of
    from aar.runtime.small import SmallJobs, count_cost

    jobs = SmallJobs(runtime.small_models.model(runtime.active), runtime.base)
    answer = await jobs.ask_once(question, system, max_tokens)
    # The router is asked before there is an agent, whose budget this might be; the day's is one for all.
    count_cost(session, budget_of(runtime.base, session), jobs, name)
    return answer


def attach_counsel(runtime: Runtime, session: Session, agent: Agent) -> None:
    """Let what the settings want stand beside the prompts and answers of the user's agent."""
    memory = runtime.config.memory
    if memory.enabled and memory.recall:
        agent.counsel.append(_Recall(runtime, session))
    place = runtime.extras.main_place(session, lambda: agent)
    _Beside(runtime, session, place, runtime.profile).attach(agent)


def attach_child_counsel(
    runtime: Runtime, session: Session, agent: Agent, place: Member, profile: Profile
) -> None:
    """Let the advisors and the critic that its file names stand beside an agent that works for another."""
    if profile.advisors or profile.critic:
        _Beside(runtime, session, place, profile).attach(agent)


class _Recall:
    """Puts the notes that fit before the model; an `aar.core.agent.Counsel`."""

    def __init__(self, runtime: Runtime, session: Session) -> None:
        self._runtime, self._session = runtime, session
        self._notes: SessionNotes | None = None

    async def __call__(self, prompt: str) -> Sequence[Event]:
        if not self._runtime.base.may_have_notes or self._runtime.extras.extensions.replaces("memory"):
            return ()
        if self._notes is None:
            from aar.runtime.notes import SessionNotes

            self._notes = SessionNotes(self._runtime, self._session)
        try:
            return await self._notes.recall(prompt)
        except (AarError, OSError) as error:
            # Notes are a help: a run goes on without them.
            return [Notice(level="warning", code="notes", message=f"Notes could not be read: {error}")]


class _Beside:
    """Advisors and critic of one agent."""

    def __init__(self, runtime: Runtime, session: Session, place: Member, profile: Profile | None) -> None:
        self._session = session
        self._place, self._profile = place, profile
        # Made now: what is wrong with its settings is told before a run, not in it.
        self._counsel = runtime.extras.counsel
        self._prompt = ""
        self._rounds: tuple[str | None, int] = (None, 0)

    def attach(self, agent: Agent) -> None:
        """Stand beside ``agent``, which is at the place."""
        agent.counsel.append(self.advise)
        agent.reviewers.append(self.criticise)

    @property
    def _below(self) -> bool:
        return self._place.depth > 0

    async def advise(self, prompt: str) -> Sequence[Event]:
        """Return the advice of all advisors on a prompt; an `aar.core.agent.Counsel`."""
        self._prompt = prompt
        try:
            advisors = self._counsel.advisors_of(self._profile, below=self._below)
        except AarError as error:
            return [Notice(level="warning", code="advisor", message=f"No advisors were asked: {error}")]
        if not advisors:
            return ()
        from aar.orchestration.advisors import advice_event, ask_all
        from aar.orchestration.handoff import quoted

        # A child knows nothing of the conversation of the main agent, so its advisors need not either.
        said = "" if self._below else quoted(self._session.messages()[:-1], SAID_CHARS)
        record = self._place.parent().record or self._session
        answers = await ask_all(self._place, record, advisors, prompt, before_work=True, said=said)
        return [advice_event(answer) for answer in answers]

    async def criticise(self, record: RunRecord) -> Event | None:
        """Return what the critic wants done better, if anything; an `aar.core.agent.Reviewer`."""
        settings = self._counsel.critic_of(self._profile, below=self._below)
        if settings is None or not (record.text.strip() or record.diffs):
            return None
        run_id, done = self._rounds
        done = done if run_id == record.run_id else 0
        if done >= settings.rounds:
            return None
        self._rounds = (record.run_id, done + 1)
        from aar.orchestration.consult import consult
        from aar.orchestration.critic import VERDICT_SCHEMA, critic_facts, critic_profile, verdict_events

        facts = critic_facts(self._prompt, record.text, record.diffs)
        content = [ResourceBlock(uri=name, text=text) for name, text in facts]
        words = TextBlock(text="Judge this work.")
        profile = critic_profile(settings)
        try:
            said = await consult(
                self._place,
                record,
                profile,
                [*content, words],
                title="judge the answer",
                schema=VERDICT_SCHEMA,
            )
        except AarError as error:
            record.append(
                Notice(level="warning", code="critic", message=f"The critic was not asked: {error}")
            )
            return None
        if said.problem:
            record.append(Notice(level="warning", code="critic", message=said.problem))
            return None
        told, sent_back = verdict_events(said.document, done + 1, settings.rounds)
        count = len(said.document.get("improvements", ()))
        asks = f"The critic asks for {count} improvement{'s' if count != 1 else ''}."
        record.append(told or Notice(level="info", code="critic", message=asks))
        return sent_back


def notes_for(
    runtime: Runtime, session: Session, call: ToolCall, outside: Callable[[], bool]
) -> NoteKeeper | None:
    """Return the notes as a call reaches them; ``None`` where it is no call for notes.

    Args:
        runtime: All parts.
        session: Of the call.
        call: The call.
        outside: Tells whether text of strangers is in the run.
    """
    if not runtime.config.memory.enabled or "memory" not in call.tool_name.lower():
        return None
    from aar.runtime.notes import CallNotes

    return CallNotes(runtime, session, call, outside)
