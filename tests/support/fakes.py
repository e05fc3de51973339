"""A model whose answers are told, a person who answers questions, and an agent with real parts around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aar.config.schema import BudgetConfig, GuardrailsConfig, LimitsConfig, ModelConfig, VerifyConfig
from aar.core.agent import Agent, AgentConfig, RunResult
from aar.core.approvals import PermissionManager
from aar.core.prompt import build_prompt
from aar.core.provider_runner import ActiveModel, ProviderRunner
from aar.core.session import Session
from aar.core.verify.verifier import Verifier
from aar.core.view import SessionView
from aar.memory.memory_store import MemoryStore
from aar.protocol.events import Approval, ApprovalRequest, Event, PlanEvent, StreamChunk, ToolCall
from aar.protocol.messages import Message, ReasoningBlock, TextBlock, ToolResultBlock, ToolUseBlock
from aar.protocol.ports import Emit, Spawner, ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.protocol.usage import Price, Usage
from aar.providers.base import (
    Delta,
    Provider,
    ProviderCapabilities,
    ProviderRequest,
    ProviderResponse,
    StopKind,
)
from aar.safety.files import WorkspaceFiles
from aar.safety.policy import RuleSet, SafetyPolicy
from aar.tools.builtin.catalogue import builtin_tools
from aar.tools.executor import ToolExecutor
from aar.tools.output_store import OutputStore
from aar.tools.registry import ToolRegistry
from tests.support.plain_spawner import PlainSpawner

_BUILTIN = builtin_tools()


def call(name: str, call_id: str | None = None, /, **arguments: Any) -> ToolUseBlock:
    """A tool call of a told answer; without an id it gets one of its own."""
    return ToolUseBlock(call_id=call_id or "", name=name, arguments=arguments)


@dataclass(frozen=True)
class Turn:
    """One answer, or one failure.

    Attributes:
        text: Said in pieces, one a word.
        calls: Tool calls after the text.
        reasoning: Thought before the text.
        stop: Why the model stops.
        usage: ``None``: the server tells none.
        fail: Raised, after ``text``.
        hang: Stop for ever after ``text``.
        gate: Waited for before anything is said.
        refusal: Whether it declines.
        progress: Told before the first word.
    """

    text: str = ""
    calls: Sequence[ToolUseBlock] = ()
    reasoning: str = ""
    stop: StopKind | None = None
    usage: Usage | None = field(default_factory=lambda: Usage(input=10, output=5))
    fail: BaseException | None = None
    hang: bool = False
    gate: asyncio.Event | None = None
    refusal: bool = False
    progress: str | None = None


class ToldProvider(Provider):
    """Gives its turns one after the other; the last one again and again."""

    name = "told"

    def __init__(self, turns: Sequence[Turn | str]) -> None:
        self.turns = [Turn(turn) if isinstance(turn, str) else turn for turn in turns]
        self.requests: list[ProviderRequest] = []
        self.speaking = asyncio.Event()
        self.streams = 0
        self.closed = 0

    def capabilities(self, model: str) -> ProviderCapabilities:
        return ProviderCapabilities()

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        turn = self.turns[min(len(self.requests), len(self.turns) - 1)]
        self.requests.append(request)
        self.streams += 1
        try:
            if turn.gate is not None:
                await turn.gate.wait()
            for delta in _pieces(turn):
                yield delta
                await asyncio.sleep(0)
            self.speaking.set()
            if turn.hang:
                await asyncio.Event().wait()
            if turn.fail is not None:
                raise turn.fail
            yield Delta(response=_response(turn, len(self.requests)))
        finally:
            self.closed += 1


def _pieces(turn: Turn) -> list[Delta]:
    thoughts = [Delta(reasoning=word) for word in turn.reasoning.split(" ") if word]
    words = turn.text.split(" ")
    text = [Delta(text=word if i == 0 else f" {word}") for i, word in enumerate(words) if turn.text]
    loading = [Delta(progress=turn.progress)] if turn.progress else []
    return [
        *loading,
        *thoughts,
        *text,
        *(Delta(tool_index=i, tool_name=c.name) for i, c in enumerate(turn.calls)),
    ]


def _response(turn: Turn, number: int) -> ProviderResponse:
    blocks: list[TextBlock | ReasoningBlock | ToolUseBlock] = []
    if turn.reasoning:
        blocks.append(ReasoningBlock(text=turn.reasoning.replace(" ", "")))
    if turn.text:
        blocks.append(TextBlock(text=turn.text))
    for place, block in enumerate(turn.calls):
        blocks.append(block if block.call_id else block.model_copy(update={"call_id": f"c{number}.{place}"}))
    stop: StopKind = turn.stop or ("tool_use" if turn.calls else "end_turn")
    return ProviderResponse(tuple(blocks), turn.usage, stop, stop_raw=stop, refusal=turn.refusal)


class Person:
    """Answers each question as it is asked, by a function."""

    def __init__(self, answer: Callable[[ApprovalRequest], dict[str, Any]]) -> None:
        self.asked: list[ApprovalRequest] = []
        self._answer = answer

    async def decide(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        return Approval(**{"call_id": request.call_id, "decision": "allow", **self._answer(request)})


def tool(
    name: str,
    handler: Callable[[dict[str, Any], ToolContext], Any],
    *effects: SideEffect,
    **fields: Any,
) -> ToolSpec:
    """A tool of a test; without effects it is read-only and runs beside others."""
    schema = {"type": "object", "properties": {"key": {"type": "string"}}}
    options: dict[str, Any] = {"concurrency": "serial" if effects else "parallel", **fields}
    return ToolSpec(name, f"Test tool {name}.", schema, frozenset(effects), handler, **options)


class World:
    """An agent in a folder, with real session, policy, tools and files."""

    def __init__(
        self,
        root: Path,
        turns: Sequence[Turn | str] | Provider,
        *,
        mode: Any = "edit",
        rules: Sequence[RuleSet] = (),
        tools: Sequence[ToolSpec] = (),
        person: Any = None,
        store: Any = None,
        session: Session | None = None,
        spawner: Spawner | None = None,
        verify: Sequence[str] = (),
        price: Price | None = None,
        dialect: Any = "native",
        stream: bool = True,
        retries: int = 5,
        limits: dict[str, Any] | None = None,
        guardrails: dict[str, Any] | None = None,
        wall: str = "none",
        model: Any = None,
        capabilities: dict[str, Any] | None = None,
        **executor: Any,
    ) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.store = store or MemoryStore()
        self.session = session or Session.create(self.store, cwd=root, model="told/m")
        self.provider = turns if isinstance(turns, Provider) else ToldProvider(turns)
        self.live: list[Event] = []
        self.logged: list[BaseException] = []
        self.session.on_event(self.live.append)
        self.files = WorkspaceFiles(root)
        self.spawner = spawner or PlainSpawner()
        self.policy = SafetyPolicy(mode, root, rules=rules, wall=wall)
        self.person = PermissionManager(self._keep) if person == "door" else person
        own = {tool.name for tool in tools}
        self.registry = ToolRegistry([*(tool for tool in _BUILTIN if tool.name not in own), *tools])
        caps = replace(self.provider.capabilities("m"), price=price, dialect=dialect, **(capabilities or {}))
        self.active = ActiveModel("told/m", self.provider, "m", caps)
        self.executor = ToolExecutor(
            self.registry,
            self.policy,
            self.person,
            self._context,
            **{"sync": self.session.sync, "log": lambda _what, error: self.logged.append(error), **executor},
        )
        settings = model or ModelConfig(stream=stream, retries=retries)
        self.agent = Agent(
            AgentConfig(
                LimitsConfig(**(limits or {})), GuardrailsConfig(**(guardrails or {})), BudgetConfig()
            ),
            ProviderRunner(self.active, settings, chance=lambda: 0.0),
            self.executor,
            self._view,
            self.files,
            approvals=self.person if isinstance(self.person, PermissionManager) else None,
            make_verifier=lambda: Verifier(verify, self.spawner, root, VerifyConfig()) if verify else None,
            log=lambda _what, error: self.logged.append(error),
        )

    def _keep(self, rule: str, _scope: str) -> None:
        self.policy.rules = (*self.policy.rules, RuleSet.parse("session", allow=(rule,)))

    def _view(self, session: Session) -> SessionView:
        tools = tuple(self.registry.specs())
        prompt = build_prompt(workspace=self.root, dialect="native", tools=tools, mode="edit")
        return SessionView(session, self.agent.runner.active, prompt, tools, self._resolve)

    def _resolve(self, name: str) -> str | None:
        spec = self.registry.get(name)
        return spec.name if spec else None

    def _context(self, item: ToolCall, emit: Emit) -> ToolContext:
        async def nobody(_question: str, _options: Sequence[str]) -> str | None:
            return None

        return ToolContext(
            call_id=item.call_id,
            workspace=self.root,
            files=self.files,
            spawner=self.spawner,
            outputs=OutputStore(self.root.parent / "outputs"),
            progress=lambda _text: None,
            ask=nobody,
            plan=self.session.plan,
            set_plan=lambda items: emit.append(PlanEvent(items=tuple(items))),
        )

    async def run(self, prompt: str = "Do it.", **options: Any) -> RunResult:
        async with asyncio.timeout(60):
            return await self.agent.run(prompt, self.session, **options)

    def start(self, prompt: str = "Do it.") -> asyncio.Task[RunResult]:
        return asyncio.create_task(self.run(prompt))

    # What happened

    @property
    def events(self) -> list[Event]:
        return list(self.session.events())

    def of(self, *types: str) -> list[Any]:
        return [event for event in self.events if event.type in types]

    @property
    def results(self) -> list[Any]:
        return self.of("tool_result")

    @property
    def finished_chunks(self) -> int:
        return sum(1 for event in self.live if isinstance(event, StreamChunk) and event.finished)

    def shape(self) -> list[str]:
        """Types of the stored events, without states and what precedes the prompt."""
        types = [event.type for event in self.events if event.type != "state"]
        return types[types.index("user_message") + 1 :] if "user_message" in types else types


def done(output: str = "ok", **fields: Any) -> ToolOutcome:
    return ToolOutcome(output=output, **fields)


def check_messages(messages: Sequence[Message]) -> None:
    """Fail unless the conversation can be sent: roles alternate, every call has its result right after it."""
    assert [m.role for m in messages] == ["user" if i % 2 == 0 else "assistant" for i in range(len(messages))]
    for place, message in enumerate(messages):
        assert message.content
        results = [block.call_id for block in message.content if isinstance(block, ToolResultBlock)]
        before = messages[place - 1].tool_uses if place else ()
        assert results == [use.call_id for use in before]


def no_tasks_left() -> list[asyncio.Task[Any]]:
    """Tasks besides the test's own."""
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
