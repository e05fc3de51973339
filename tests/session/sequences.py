"""Random but possible histories of a session, and what must hold for the messages folded from them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from aar.protocol.events import (
    AssistantMessage,
    Compaction,
    ContextEvent,
    Event,
    Notice,
    ProviderMeta,
    Reasoning,
    Rewind,
    ToolCall,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from aar.protocol.messages import Message, ReasoningBlock, TextBlock, ToolResultBlock
from aar.protocol.usage import Usage

_TEXTS = st.sampled_from(["", "  \n", "fix it", "Zeile \u2028 zwei", "日本語", "x" * 50])
_CALLS = st.sampled_from(["a", "b", "c", "d"])
_RUNS = st.sampled_from(["R1", "R2", None])
_STEPS = st.sampled_from([1, 2, 3, None])
_AGENTS = st.sampled_from(["main", "main", "main", "sub-1"])


def _text(text: str) -> tuple[TextBlock, ...]:
    return (TextBlock(text=text),)


def _place(draw: st.DrawFn) -> dict[str, object]:
    return {"run_id": draw(_RUNS), "step": draw(_STEPS), "agent_id": draw(_AGENTS)}


@st.composite
def any_event(draw: st.DrawFn) -> Event:
    """One event of any kind that folds look at, with no regard to what came before."""
    place = _place(draw)
    kind = draw(st.integers(0, 11))
    text = draw(_TEXTS)
    if kind == 0:
        return UserMessage(content=_text(text), **place)
    if kind == 1:
        return ContextEvent(source="hook", content=_text(text), trusted=draw(st.booleans()), **place)
    if kind == 2:
        return Reasoning(content=text, **place)
    if kind in (3, 4):
        return AssistantMessage(content=text, partial=draw(st.booleans()), **place)
    if kind in (5, 6):
        return ToolCall(call_id=draw(_CALLS), tool_name="bash", **place)
    if kind in (7, 8):
        return ToolResult(call_id=draw(_CALLS), tool_name="bash", output=text, **place)
    if kind == 9:
        return ProviderMeta(provider="p", model="m", usage=Usage(input=1), cost_usd=None, **place)
    return draw(st.sampled_from([Notice(message="n"), UnknownEvent(type="from_the_future")]))


@st.composite
def chaos(draw: st.DrawFn) -> list[Event]:
    """Events in any order, numbered, with compactions and rewinds thrown in."""
    events = list(draw(st.lists(any_event(), max_size=40)))
    numbered: list[Event] = []
    for event in events:
        numbered.append(_number(event, numbered))
        if draw(st.integers(0, 9)) == 0:
            numbered.append(_number(draw(_back(len(numbered))), numbered))
    return numbered


def _back(last: int) -> st.SearchStrategy[Event]:
    seqs = st.integers(1, last)
    compaction = seqs.map(lambda seq: Compaction(summary="what was", first_kept_seq=seq))
    scopes = st.sampled_from(["conversation", "files", "both"])
    rewind = st.tuples(seqs, scopes).map(lambda pair: Rewind(to_seq=pair[0], scope=pair[1]))
    return st.one_of(compaction, rewind)


def _number(event: Event, before: Sequence[Event]) -> Event:
    return event.model_copy(update={"seq": len(before) + 1})


@st.composite
def real_history(draw: st.DrawFn) -> list[Event]:
    """Runs as the loop makes them: prompts, steps, results that a cancel or crash may have cut off."""
    events: list[Event] = []
    unique = 0

    def add(event: Event) -> None:
        events.append(_number(event, events))

    for run in range(draw(st.integers(1, 3))):
        add(UserMessage(content=_text(f"prompt {run}"), run_id=f"R{run}"))
        for step in range(1, draw(st.integers(1, 4))):
            place = {"run_id": f"R{run}", "step": step}
            if draw(st.booleans()):
                add(Reasoning(content=f"thought {run}.{step}", signature="s", **place))
            if draw(st.booleans()):
                add(AssistantMessage(content=f"answer {run}.{step}", partial=draw(st.booleans()), **place))
            calls = [f"c{unique + number}" for number in range(draw(st.integers(0, 3)))]
            unique += len(calls)
            for call in calls:
                add(ToolCall(call_id=call, tool_name="bash", arguments={"command": call}, **place))
            add(ProviderMeta(provider="p", model="m", usage=Usage(input=1), cost_usd=0.5, **place))
            for call in draw(st.permutations(calls)):
                for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
                    add(ToolResult(call_id=call, tool_name="bash", output=f"result {call}", **place))
            if draw(st.integers(0, 4)) == 0:
                add(UserMessage(content=_text(f"steer {run}.{step}"), source="steer", **place))
            if draw(st.integers(0, 5)) == 0:
                add(Compaction(summary=f"summary {run}.{step}", first_kept_seq=draw(_seq(events))))
            if draw(st.integers(0, 7)) == 0:
                add(Rewind(to_seq=draw(_seq(events)), scope="conversation"))
                break
    return events


def _seq(events: Sequence[Event]) -> st.SearchStrategy[int]:
    return st.integers(1, len(events))


def check(messages: Sequence[Message]) -> None:
    """Assert what every provider demands of a conversation."""
    for index, message in enumerate(messages):
        assert message.role == ("user" if index % 2 == 0 else "assistant")
        assert message.content
        assert all(block.text.strip() for block in message.content if isinstance(block, TextBlock))
        calls = [block.call_id for block in message.tool_uses]
        assert len(calls) == len(set(calls))
        if message.role == "assistant":
            assert not all(isinstance(block, ReasoningBlock) for block in message.content)
            assert results(messages[index + 1] if index + 1 < len(messages) else None) == calls
        elif index == 0:
            assert not results(message)


def results(message: Message | None) -> list[str]:
    """Return the call ids of a message's results; asserts that they stand first."""
    if message is None:
        return []
    kinds = [isinstance(block, ToolResultBlock) for block in message.content]
    assert kinds == sorted(kinds, reverse=True)
    return [block.call_id for block in message.content if isinstance(block, ToolResultBlock)]
