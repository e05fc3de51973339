"""Whatever is cut, compacted, cancelled, forked or undone: what is sent is valid for every vendor, and keeps the task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aar.core.compaction.facts import gather
from aar.core.compaction.meter import ContextMeter, message_tokens
from aar.core.compaction.plan import choose_cut, shrink_old, shrink_tail
from aar.core.fold import MessageFold, fold_messages
from aar.protocol.events import Compaction, Event, Reasoning, Rewind, ToolResult, UserMessage
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import ProviderRequest
from tests.compaction.support import everything
from tests.session.sequences import chaos, check, real_history


def compacted(events: Sequence[Event], keep: int, trigger: str = "auto") -> list[Event]:
    """Return ``events`` with the compaction that the compactor would choose at their end."""
    gathered = gather(events)
    turns = gathered.fold.outline()
    cut = choose_cut(turns, keep)
    references = gathered.facts.references
    shrunk = (*shrink_old(turns[: cut.kept], references), *shrink_tail(turns[cut.kept :], references, keep))
    words = gathered.facts.words
    latest = next((item.seq for item in reversed(words) if item.source != "steer"), 0)
    event = Compaction(
        seq=after(events),
        trigger=trigger,
        shrunk=tuple({item.seq: item.made(None) for item in shrunk}.values()),
        summary="what was" if cut.worthwhile else "",
        first_kept_seq=cut.first_kept_seq,
        kept_seqs=tuple(item.seq for item in words if latest <= item.seq < cut.first_kept_seq),
    )
    return [*events, event]


def after(events: Sequence[Event]) -> int:
    """Return the next seq."""
    return max((event.seq or 0 for event in events), default=0) + 1


def long_outputs(events: Sequence[Event]) -> list[Event]:
    """Make every result long enough to shrink."""
    return [
        event.model_copy(update={"output": event.output + " many words" * 300})
        if isinstance(event, ToolResult)
        else event
        for event in events
    ]


def with_sealed_thoughts(events: Sequence[Event]) -> list[Event]:
    """Let every thought carry the item that its server wants back unchanged."""
    from aar.providers.openai.seal import seal

    def item(seq: int | None) -> dict[str, Any]:
        return {"type": "reasoning", "id": f"rs_{seq}", "summary": [], "encrypted_content": "x"}

    return [
        event.model_copy(update={"data": seal("h", item(event.seq))})
        if isinstance(event, Reasoning)
        else event
        for event in events
    ]


def task_of(events: Sequence[Event]) -> str | None:
    """Return the last prompt that was not undone."""
    live: list[Event] = []
    moments: list[tuple[int, list[Event]]] = [(0, [])]
    for event in events:
        if isinstance(event, Rewind) and event.scope != "files":
            live = next(then for seq, then in reversed(moments) if seq <= event.to_seq)
        else:
            live = [*live, event]
        moments.append((event.seq or 0, live))
    texts = [
        block.text
        for event in live
        if isinstance(event, UserMessage) and event.agent_id == "main" and event.source != "steer"
        for block in event.content
        if isinstance(block, TextBlock)
    ]
    return texts[-1] if texts else None


@st.composite
def worked_on(draw: st.DrawFn) -> list[Event]:
    """A history that is compacted, undone and worked on again and again."""
    events = long_outputs([e for e in draw(real_history()) if not isinstance(e, Compaction)])
    for _ in range(draw(st.integers(1, 3))):
        match draw(st.integers(0, 3)):
            case 0 | 1:
                events = compacted(events, draw(st.integers(0, 3000)))
            case 2:
                to_seq = draw(st.integers(1, after(events) - 1))
                events = [*events, Rewind(seq=after(events), to_seq=to_seq, scope="conversation")]
            case _:
                cut = draw(st.integers(1, len(events)))
                events = events[:cut]
    return events


@settings(max_examples=120, deadline=None)
@given(worked_on())
def test_a_history_that_is_compacted_cut_forked_and_undone_stays_valid_and_keeps_the_task(
    events: list[Event],
) -> None:
    messages = fold_messages(events)
    check(messages)
    task = task_of(events)
    if task is not None and messages:
        assert task in everything(messages)


@settings(max_examples=60, deadline=None)
@given(chaos(), st.integers(0, 500))
def test_even_chaos_is_compacted_to_a_valid_conversation(events: list[Event], keep: int) -> None:
    check(fold_messages(compacted(events, keep)))
    check(fold_messages(compacted(compacted(events, keep), keep // 2)))


@settings(max_examples=60, deadline=None)
@given(worked_on())
def test_a_fold_that_was_asked_on_the_way_equals_one_from_scratch(events: list[Event]) -> None:
    fold = MessageFold()
    for event in events:
        fold.apply(event)
        check(fold.messages())
    assert fold.messages() == fold_messages(events)


@settings(max_examples=60, deadline=None)
@given(worked_on(), st.integers(0, 200))
def test_undoing_a_compaction_brings_every_word_back(events: list[Event], keep: int) -> None:
    before, last = fold_messages(events), after(events)
    undone = [*compacted(events, keep), Rewind(seq=last + 1, to_seq=last - 1, scope="conversation")]
    assert fold_messages(undone) == before


@settings(max_examples=60, deadline=None)
@given(real_history())
def test_the_meter_that_grew_equals_one_that_starts_now(events: list[Event]) -> None:
    fold, meter = MessageFold(), ContextMeter()
    for event in events:
        fold.apply(event)
        if isinstance(event, Compaction | Rewind):
            meter = ContextMeter()
        messages = fold.messages()
        assert meter.measure(messages).total == sum(message_tokens(message).total for message in messages)


@settings(max_examples=40, deadline=None)
@given(worked_on())
def test_every_vendor_takes_what_is_left(events: list[Event]) -> None:
    messages = fold_messages(with_sealed_thoughts(events))
    if messages:
        request = ProviderRequest(model="m", system="s", messages=messages)
        rules = (_anthropic, _openai, _responses, _gemini, _ollama)
        calls = sum(len(message.tool_uses) for message in messages)
        assert [takes(request) for takes in rules] == [calls] * len(rules), "a call was lost"


def _anthropic(request: ProviderRequest) -> int:
    """Roles alternate, and every use is answered in the very next message, results first; return how many."""
    from aar.providers.anthropic.encode import RequestEncoder

    turns = _body(RequestEncoder("h").encode(request, {"model": "m"}, {"max_tokens": 9}).body)["messages"]
    assert [turn["role"] for turn in turns] == [
        "user" if i % 2 == 0 else "assistant" for i in range(len(turns))
    ]
    for turn, following in zip(turns, [*turns[1:], {"content": []}], strict=True):
        assert turn["content"]
        uses = [part["id"] for part in turn["content"] if part["type"] == "tool_use"]
        kinds = [part["type"] == "tool_result" for part in following["content"]]
        assert [
            part["tool_use_id"] for part in following["content"] if part["type"] == "tool_result"
        ] == uses or (turn["role"] == "user")
        assert kinds == sorted(kinds, reverse=True)
    return sum(part["type"] == "tool_use" for turn in turns for part in turn["content"])


def _openai(request: ProviderRequest) -> int:
    """Tool messages follow the calls they answer, each once; return how many."""
    from aar.providers.chat_completions.encode import RequestEncoder, WireOptions

    open_calls: list[str] = []
    calls = 0
    for message in _body(RequestEncoder(WireOptions("h")).encode(request, stream=False).body)["messages"]:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert open_calls == []
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
        calls += len(open_calls)
        assert message.get("content") or open_calls
    assert open_calls == []
    return calls


def _responses(request: ProviderRequest) -> int:
    """Outputs answer the calls before them, each once; a thought stands before what it led to."""
    from aar.providers.chat_completions.encode import WireOptions
    from aar.providers.openai.encode import ResponsesEncoder

    encoder = ResponsesEncoder(WireOptions("h"), thinks=True)
    open_calls: list[str] = []
    calls = 0
    items = _body(encoder.encode(request, stream=False).body)["input"]
    for item, following in zip(items, [*items[1:], {"type": "end"}], strict=True):
        match item["type"]:
            case "function_call":
                open_calls.append(item["call_id"])
                calls += 1
            case "function_call_output":
                open_calls.remove(item["call_id"])
            case "reasoning":
                assert open_calls == [], "a thought stands between a call and its answer"
                assert following["type"] in ("reasoning", "function_call", "message")
                assert following.get("role") != "user"
            case _:
                assert open_calls == [], "an answer is missing"
                assert item["content"]
    assert open_calls == []
    return calls


def _gemini(request: ProviderRequest) -> int:
    """As many responses as calls, in the turn right after them; return how many."""
    from aar.providers.gemini.encode import RequestEncoder

    contents = _body(RequestEncoder("h").encode(request, "budget").body)["contents"]
    assert contents[0]["role"] == "user"
    for turn, following in zip(contents, [*contents[1:], {"parts": []}], strict=True):
        assert turn["parts"]
        calls = [part for part in turn["parts"] if "functionCall" in part]
        answers = [part for part in following["parts"] if "functionResponse" in part]
        assert len(calls) == len(answers) or turn["role"] == "user"
    return sum("functionCall" in part for turn in contents for part in turn["parts"])


def _ollama(request: ProviderRequest) -> int:
    """As many tool messages as calls, right after them; return how many."""
    from aar.providers.chat_completions.encode import WireOptions
    from aar.providers.ollama.encode import OllamaEncoder

    waiting = calls = 0
    for message in _body(OllamaEncoder(WireOptions("h")).encode(request, stream=False).body)["messages"]:
        if message["role"] == "tool":
            waiting -= 1
            continue
        assert waiting == 0
        waiting = len(message.get("tool_calls") or ())
        calls += waiting
    assert waiting == 0
    return calls


def _body(body: bytes) -> dict[str, Any]:
    return json.loads(body)


def test_a_conversation_of_one_message_has_nothing_to_leave_out() -> None:
    event = UserMessage(seq=1, content=(TextBlock(text="hi"),))
    fold = MessageFold()
    fold.apply(event)
    assert not choose_cut(fold.outline(), 0).worthwhile
    assert [message.text for message in fold_messages([event])] == ["hi"]
    assert isinstance(fold.messages()[0], Message)
