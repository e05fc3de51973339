"""The fold of events to numbers and to what a session is now: cost, title, model, plan, open calls, state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Any, cast

from aar.memory.event_lines import parse_line
from aar.memory.session_scan import title_from_content
from aar.protocol.events import (
    AssistantMessage,
    Compaction,
    ErrorEvent,
    Event,
    ModelSwitch,
    PlanEvent,
    PlanItem,
    PromptEvent,
    ProviderMeta,
    Rewind,
    SessionEvent,
    Setting,
    StateEvent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.state import AgentState, StopReason
from aar.protocol.usage import Usage

COMPACTION_AGENT = "compaction"
"""Agent id of the requests that write summaries: they cost money, and are no steps."""


@dataclass(slots=True)
class RunTotals:
    """Numbers of one run, of one agent or of a whole session.

    Attributes:
        cost_usd: Sum of the known prices, in US dollars.
        cost_known: False when a request had no known price; then ``cost_usd`` is a lower bound.
        cache_saved_usd: What prompt caches spared, as far as prices are known.
        requests: Model requests.
        steps: Steps that had a model request.
        tool_calls: Calls that models asked for.
        tool_errors: Results that were errors.
        errors: Error events.
    """

    cost_usd: float = 0.0
    cost_known: bool = True
    cache_saved_usd: float = 0.0
    requests: int = 0
    steps: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    errors: int = 0
    # Plain numbers: a model object for every sum would be most of the cost of this fold.
    _tokens: list[int] = field(default_factory=lambda: [0, 0, 0, 0, 0])
    _estimated: bool = False

    @property
    def usage(self) -> Usage:
        """Tokens."""
        read = self._tokens
        return Usage(
            input=read[0],
            output=read[1],
            cache_read=read[2],
            cache_write=read[3],
            reasoning=read[4],
            estimated=self._estimated,
        )

    def add_request(self, meta: ProviderMeta, *, new_step: bool) -> None:
        """Count one model request."""
        usage, tokens = meta.usage, self._tokens
        tokens[0] += usage.input
        tokens[1] += usage.output
        tokens[2] += usage.cache_read
        tokens[3] += usage.cache_write
        tokens[4] += usage.reasoning
        self._estimated = self._estimated or usage.estimated
        self.cache_saved_usd += meta.cache_saved_usd or 0.0
        self.requests += 1
        self.steps += new_step
        if meta.cost_usd is None:
            self.cost_known = False
        else:
            self.cost_usd += meta.cost_usd


_NUMBERS = ("runs", "agents", "models")
_PLACES = ("_counted", "_answered")
_APART = frozenset({"all", "plan", "task_plan", "_open", "_handlers", *_NUMBERS, *_PLACES})
"""Attributes that are more than values of JSON: `TotalsFold.dump` looks after each of them."""


class TotalsFold:
    """Folds all events of a session, of every agent, to numbers and present facts.

    Attributes:
        all: Numbers of the session, sub-agents included.
        runs: Numbers by run id.
        agents: Numbers by agent id.
        title: Last rename, else the title it was made with, else the first line of the first prompt.
        model: Model that answers the main agent.
        chosen_model: The one that was chosen for it, which a fallback does not replace.
        base_url: Address that was named for the chosen model; ``None``: none.
        mode: Permission mode, when one was set.
        cwd: Working folder.
        plan: Items of the main agent's plan.
        plan_revision: Its revision; 0: none.
        goal: Criterion that every run is to meet; ``None``: none.
        task_plan: The last plan that can be run, which a todo list does not replace; ``None``: none.
        stop_reason: Why the last run of the main agent ended.
        states: Last state by agent id.
        prompt_sha256: Hash of the main agent's system prompt as last stored.
        last_compaction_seq: Seq of the main agent's last compaction, or 0.
        compactions: Seq of the last compaction or rewind by agent id; not there: the conversation only grew.
        models: Numbers by model (``provider/model``).
    """

    def __init__(self) -> None:
        self.all = RunTotals()
        self.runs: dict[str, RunTotals] = {}
        self.agents: dict[str, RunTotals] = {}
        self.title = ""
        self.model: str | None = None
        self.chosen_model: str | None = None
        self.base_url: str | None = None
        self.mode: str | None = None
        self.cwd: str | None = None
        self.plan: tuple[PlanItem, ...] = ()
        self.plan_revision = 0
        self.goal: str | None = None
        self.task_plan: PlanEvent | None = None
        self.stop_reason: StopReason | None = None
        self.states: dict[str, AgentState] = {}
        self.last_compaction_seq = 0
        self.compactions: dict[str, int] = {}
        self.models: dict[str, RunTotals] = {}
        self.prompt_sha256: str | None = None
        self._named = False
        self._open: dict[str, dict[str, ToolCall]] = {}
        self._counted: dict[str, tuple[str | None, int | None]] = {}
        self._answered: dict[str, tuple[str | None, int | None]] = {}
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            SessionEvent: self._on_session,
            Setting: self._on_setting,
            UserMessage: self._on_user_message,
            AssistantMessage: self._on_answer,
            ToolCall: self._on_call,
            ToolResult: self._on_result,
            ProviderMeta: self._on_meta,
            ModelSwitch: self._on_model_switch,
            PlanEvent: self._on_plan,
            StateEvent: self._on_state,
            ErrorEvent: self._on_error,
            Compaction: self._on_compaction,
            Rewind: self._on_rewind,
            PromptEvent: self._on_prompt,
        }

    @property
    def usage(self) -> Usage:
        """Tokens of the session."""
        return self.all.usage

    @property
    def cost_usd(self) -> float:
        """Known cost of the session in US dollars; see `cost_known`."""
        return self.all.cost_usd

    @property
    def cost_known(self) -> bool:
        """Whether every request had a known price."""
        return self.all.cost_known

    @property
    def steps(self) -> int:
        """Steps of all agents."""
        return self.all.steps

    @property
    def tool_calls(self) -> int:
        """Tool calls of all agents."""
        return self.all.tool_calls

    @property
    def errors(self) -> int:
        """Error events of all agents."""
        return self.all.errors

    def state(self, agent_id: str = "main") -> AgentState:
        """Return the last state of an agent; `idle` before the first."""
        return self.states.get(agent_id, AgentState.IDLE)

    def run(self, run_id: str) -> RunTotals:
        """Return the numbers of a run; zeros for an unknown one."""
        return self.runs.get(run_id) or RunTotals()

    def open_calls(self, agent_id: str = "main") -> list[ToolCall]:
        """Return the calls of an agent that have no result yet, in order."""
        return list(self._open.get(agent_id, {}).values())

    def agents_with_open_calls(self) -> list[str]:
        """Return the ids of agents with calls that have no result."""
        return [agent_id for agent_id, calls in self._open.items() if calls]

    def answered(self, agent_id: str, run_id: str | None, step: int | None) -> bool:
        """Tell whether the last stored answer of an agent is that of ``(run_id, step)``."""
        return self._answered.get(agent_id) == (run_id, step)

    def apply(self, event: Event) -> None:
        """Take the next event."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def dump(self) -> dict[str, Any]:
        """Return what `load` makes the same fold of, as JSON values."""
        calls = [call.to_json() for calls in self._open.values() for call in calls.values()]
        plan = PlanEvent(items=self.plan).to_json()
        task_plan = self.task_plan.to_json() if self.task_plan is not None else None
        numbers = {
            name: {key: astuple(item) for key, item in getattr(self, name).items()} for name in _NUMBERS
        }
        kept = {name: value for name, value in vars(self).items() if name not in _APART}
        kept |= {name: getattr(self, name) for name in _PLACES}
        return {**kept, **numbers, "all": astuple(self.all), "open": calls, "plan": plan, "task": task_plan}

    @classmethod
    def load(cls, data: dict[str, Any]) -> TotalsFold:
        """Return the fold as it was at `dump`.

        Raises:
            ValueError, KeyError, TypeError: ``data`` is not what `dump` returned.
        """
        fold = cls()
        for name in vars(fold).keys() - _APART:
            setattr(fold, name, data[name])
        for name in _NUMBERS:
            setattr(fold, name, {key: RunTotals(*values) for key, values in data[name].items()})
        for name in _PLACES:
            setattr(fold, name, {key: (run_id, step) for key, (run_id, step) in data[name].items()})
        fold.all = RunTotals(*data["all"])
        fold.states = {key: AgentState(state) for key, state in data["states"].items()}
        fold.stop_reason = StopReason(data["stop_reason"]) if data["stop_reason"] else None
        for line in data["open"]:
            call = cast("ToolCall", parse_line(line.encode()))
            fold._open.setdefault(call.agent_id, {})[call.call_id] = call
        fold.plan = cast("PlanEvent", parse_line(data["plan"].encode())).items
        if data["task"] is not None:
            fold.task_plan = cast("PlanEvent", parse_line(data["task"].encode()))
        return fold

    def _scopes(self, event: Event) -> list[RunTotals]:
        agent = self.agents.get(event.agent_id)
        if agent is None:
            agent = self.agents[event.agent_id] = RunTotals()
        if event.run_id is None:
            return [self.all, agent]
        run = self.runs.get(event.run_id)
        if run is None:
            run = self.runs[event.run_id] = RunTotals()
        return [self.all, agent, run]

    def _on_session(self, event: SessionEvent) -> None:
        self.cwd = event.cwd or self.cwd
        self.model = event.model or self.model
        if event.action == "start":
            self.chosen_model, self.base_url = event.model, event.base_url
        if event.title:
            self.title, self._named = event.title, True

    def _on_setting(self, event: Setting) -> None:
        if event.agent_id == "main" and event.key == "goal":
            self.goal = event.to if isinstance(event.to, str) and event.to else None
        if event.agent_id != "main" or not isinstance(event.to, str):
            return
        if event.key == "mode":
            self.mode = event.to
        elif event.key == "model":
            self.model = self.chosen_model = event.to
            self.base_url = event.base_url

    def _on_model_switch(self, event: ModelSwitch) -> None:
        if event.agent_id == "main":
            self.model = event.to_model

    def _on_user_message(self, event: UserMessage) -> None:
        if not self._named and event.agent_id == "main":
            self.title = title_from_content(event.content)
            self._named = bool(self.title)

    def _on_answer(self, event: Event) -> None:
        self._answered[event.agent_id] = (event.run_id, event.step)

    def _on_call(self, event: ToolCall) -> None:
        self._on_answer(event)
        self._open.setdefault(event.agent_id, {})[event.call_id] = event
        for totals in self._scopes(event):
            totals.tool_calls += 1

    def _on_result(self, event: ToolResult) -> None:
        self._open.get(event.agent_id, {}).pop(event.call_id, None)
        if event.is_error:
            for totals in self._scopes(event):
                totals.tool_errors += 1

    def _on_meta(self, event: ProviderMeta) -> None:
        self._on_answer(event)
        key = (event.run_id, event.step)
        of_loop = event.step is not None and event.agent_id != COMPACTION_AGENT
        new_step = of_loop and self._counted.get(event.agent_id) != key
        self._counted[event.agent_id] = key
        for totals in self._scopes(event):
            totals.add_request(event, new_step=new_step)
        name = event.full_model
        model = self.models.get(name)
        if model is None:
            model = self.models[name] = RunTotals()
        model.add_request(event, new_step=new_step)

    def _on_plan(self, event: PlanEvent) -> None:
        if event.agent_id == "main":
            self.plan, self.plan_revision = event.items, event.revision
            if event.kind == "plan":
                self.task_plan = event if event.stage != "dropped" else None

    def _on_state(self, event: StateEvent) -> None:
        self.states[event.agent_id] = event.state
        if event.agent_id == "main" and event.stop_reason is not None:
            self.stop_reason = event.stop_reason

    def _on_error(self, event: ErrorEvent) -> None:
        for totals in self._scopes(event):
            totals.errors += 1

    def _on_rewind(self, event: Rewind) -> None:
        self.compactions[event.agent_id] = event.seq or 0

    def _on_compaction(self, event: Compaction) -> None:
        self.compactions[event.agent_id] = event.seq or 0
        if event.agent_id == "main":
            self.last_compaction_seq = event.seq or 0

    def _on_prompt(self, event: PromptEvent) -> None:
        if event.agent_id == "main":
            self.prompt_sha256 = event.sha256
