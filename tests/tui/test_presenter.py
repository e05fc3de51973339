"""The fold of events to what a screen shows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aar.protocol.events import (
    Approval,
    ApprovalRequest,
    AssistantMessage,
    ErrorEvent,
    Event,
    ModelSwitch,
    Notice,
    PlanEvent,
    PlanItem,
    ProviderMeta,
    Reasoning,
    Retry,
    Rewind,
    StateEvent,
    StreamChunk,
    Subagent,
    ToolCall,
    ToolProgress,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from aar.protocol.messages import ImageBlock, TextBlock
from aar.protocol.state import AgentState, StopReason
from aar.protocol.tool import FileChange
from aar.protocol.usage import Usage
from aar.transports.tui.blocks import (
    MAX_TAIL_CHARS,
    AnswerBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    PlanBlock,
    SubagentBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
)
from aar.transports.tui.panel_lines import facts_of
from aar.transports.tui.presenter import Presenter
from aar.transports.tui.transcript.render import render_block


class Clock:
    """Seconds that go on when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def user(text: str, seq: int = 1, **fields: Any) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),), seq=seq, **fields)


def meta(seq: int = 9, cost: float | None = 0.5, **usage: int) -> ProviderMeta:
    return ProviderMeta(
        provider="x", model="m", usage=Usage(**(usage or {"input": 10, "output": 5})), cost_usd=cost, seq=seq
    )


def taken(*events: Event, live: bool = True) -> Presenter:
    presenter = Presenter(clock=Clock(), live=live)
    for event in events:
        presenter.take(event)
    return presenter


def kinds(presenter: Presenter) -> list[str]:
    return [type(block).__name__ for block in presenter.blocks]


def test_a_streamed_answer_is_the_stored_one_in_the_same_block() -> None:
    clock = Clock()
    presenter = Presenter(clock=clock)
    presenter.take(user("hi"))
    presenter.take(StreamChunk(reasoning_text="let me "))
    presenter.take(StreamChunk(reasoning_text="see"))
    clock.now += 2.5
    presenter.take(StreamChunk(text="Hel"))
    presenter.take(StreamChunk(text="lo"))
    thinking, answer = presenter.blocks[1], presenter.blocks[2]
    assert isinstance(thinking, ThinkingBlock)
    assert isinstance(answer, AnswerBlock)
    assert (thinking.text, thinking.seconds, answer.text, answer.live) == ("let me see", 2.5, "Hello", True)
    presenter.take(Reasoning(content="let me see", seq=2))
    presenter.take(AssistantMessage(content="Hello", seq=3))
    presenter.take(meta(4))
    assert presenter.blocks[1:] == [thinking, answer]
    assert (answer.seq, answer.live, thinking.seq, thinking.seconds) == (3, False, 2, 2.5)


def test_a_discarded_attempt_leaves_the_screen() -> None:
    presenter = taken(
        user("hi"),
        StreamChunk(text="wrong"),
        StreamChunk(finished=True),
        Retry(attempt=1, delay_s=3, error_kind="overloaded", message="busy", discard=True, seq=2),
        StreamChunk(text="right"),
        AssistantMessage(content="right", seq=3),
        meta(4),
    )
    assert kinds(presenter) == ["UserBlock", "MarkBlock", "AnswerBlock"]
    assert presenter.blocks[-1].text == "right"  # type: ignore[union-attr]


def test_a_call_goes_from_writing_to_done() -> None:
    presenter = taken(
        user("go"),
        StreamChunk(tool_call_fragment={"index": 0, "name": "bash", "arguments": '{"comm'}),
        StreamChunk(tool_call_fragment={"index": 0, "name": None, "arguments": 'and": "ls"}'}),
    )
    block = presenter.blocks[-1]
    assert isinstance(block, ToolBlock)
    assert (block.name, block.draft, block.status) == ("bash", '{"command": "ls"}', "writing")
    presenter.take(ToolCall(call_id="c1", tool_name="bash", arguments={"command": "ls"}, seq=2))
    presenter.take(meta(3))
    assert presenter.blocks[-1] is block
    assert block.status == "waiting"
    presenter.take(ApprovalRequest(request_id="r1", call_id="c1", tool_name="bash", arguments={}, seq=4))
    assert block.status == "asking"
    assert [request.request_id for request in presenter.status.pending] == ["r1"]
    assert presenter.status.activity == "Waiting for your answer"
    presenter.take(Approval(request_id="r1", call_id="c1", decision="allow", seq=5))
    assert presenter.status.pending == []
    assert presenter.status.activity == "Running bash"
    presenter.take(ToolProgress(call_id="c1", text="a.txt\n"))
    assert (block.status, block.tail) == ("running", "a.txt\n")
    change = FileChange(path="b.txt", action="create", added=3)
    presenter.take(
        ToolResult(call_id="c1", tool_name="bash", output="a.txt", exit_code=0, file_changes=(change,), seq=6)
    )
    assert (block.status, block.output, block.tail, block.live) == ("done", "a.txt", "", False)
    assert presenter.status.files["b.txt"].added == 3


def test_a_denied_call_shows_what_the_user_said() -> None:
    presenter = taken(
        ToolCall(call_id="c", tool_name="bash", seq=1),
        Approval(request_id="r", call_id="c", decision="reject", feedback="use make", seq=2),
        ToolResult(call_id="c", tool_name="bash", output="Error", is_error=True, category="denied", seq=3),
    )
    block = presenter.blocks[0]
    assert isinstance(block, ToolBlock)
    assert (block.status, block.feedback) == ("denied", "use make")


def test_output_of_a_running_tool_is_bounded() -> None:
    presenter = taken(ToolCall(call_id="c", tool_name="bash", seq=1))
    for number in range(1000):
        presenter.take(ToolProgress(call_id="c", text=f"{number:04}" * 100))
    block = presenter.blocks[0]
    assert isinstance(block, ToolBlock)
    assert len(block.tail) <= MAX_TAIL_CHARS
    assert block.tail.endswith("0999")


def test_parallel_fragments_go_to_their_own_calls() -> None:
    presenter = taken(
        StreamChunk(tool_call_fragment={"index": 0, "name": "grep", "arguments": "{"}),
        StreamChunk(tool_call_fragment={"index": 1, "name": "read_file", "arguments": "["}),
        StreamChunk(tool_call_fragment={"index": 0, "name": None, "arguments": "}"}),
        StreamChunk(tool_call_fragment={"index": 1, "name": None, "arguments": "]"}),
    )
    assert [(block.name, block.draft) for block in presenter.blocks] == [  # type: ignore[union-attr]
        ("grep", "{}"),
        ("read_file", "[]"),
    ]


def test_status_tells_what_happens_and_what_it_cost() -> None:
    clock = Clock()
    presenter = Presenter(clock=clock)
    presenter.take(StateEvent(state=AgentState.RUNNING, seq=1))
    assert presenter.status.working
    presenter.take(StreamChunk(text="x"))
    assert presenter.status.activity == "Answering"
    presenter.take(meta(2, cost=0.25, input=100, output=20, cache_read=1000))
    presenter.take(meta(3, cost=None, input=1, output=1))
    status = presenter.status
    assert (status.cost_usd, status.cost_known, status.context_tokens, status.run_tokens) == (
        0.25,
        False,
        2,
        1122,
    )
    presenter.take(StateEvent(state=AgentState.COMPLETED, stop_reason=StopReason.END_TURN, seq=4))
    assert not status.working
    assert status.activity == ""


def test_summing_up_on_request_is_shown_until_it_is_over() -> None:
    presenter = Presenter()
    presenter.take(StateEvent(state=AgentState.IDLE, seq=1))
    assert not presenter.status.working
    presenter.take(StateEvent(state=AgentState.COMPACTING, seq=2))
    assert presenter.status.working
    assert presenter.status.activity == "Compacting the conversation"
    presenter.take(StateEvent(state=AgentState.IDLE, seq=3))
    assert not presenter.status.working


def test_the_same_answer_of_a_command_is_counted_and_not_repeated() -> None:
    presenter = Presenter()
    for _ in range(3):
        presenter.add_local_notice("A run is under way.", "error")
    assert [block.count for block in presenter.blocks] == [3]


def test_an_interrupted_run_says_so_and_leaves_no_open_question() -> None:
    presenter = taken(
        StateEvent(state=AgentState.RUNNING, seq=1),
        ApprovalRequest(request_id="r", call_id="c", tool_name="bash", arguments={}, seq=2),
        StateEvent(state=AgentState.CANCELLED, stop_reason=StopReason.CANCELLED, seq=3),
    )
    assert presenter.status.pending == []
    last = presenter.blocks[-1]
    assert isinstance(last, MarkBlock)
    assert last.label == "Interrupted"


def test_a_plan_is_one_block_that_is_kept_up_to_date() -> None:
    first = PlanEvent(items=(PlanItem(id="1", title="a"),), seq=1)
    second = PlanEvent(items=(PlanItem(id="1", title="a", status="completed"),), revision=2, seq=2)
    presenter = taken(first, second)
    assert kinds(presenter) == ["PlanBlock"]
    block = presenter.blocks[0]
    assert isinstance(block, PlanBlock)
    assert block.items[0].status == "completed"
    assert presenter.status.plan == block.items


def test_equal_notices_in_a_row_are_counted() -> None:
    presenter = taken(*(Notice(message="disk full", seq=number) for number in (1, 2, 3)))
    block = presenter.blocks[0]
    assert isinstance(block, NoticeBlock)
    assert block.count == 3


def test_errors_carry_advice() -> None:
    presenter = taken(ErrorEvent(kind="auth", message="The key was refused.", seq=1))
    block = presenter.blocks[0]
    assert isinstance(block, ErrorBlock)
    assert "aar auth set" in block.advice


def test_a_rewound_conversation_ends_where_it_went_back_to() -> None:
    presenter = taken(
        user("one", 1),
        AssistantMessage(content="a", seq=2),
        user("two", 3),
        AssistantMessage(content="b", seq=4),
        Rewind(to_seq=2, scope="conversation", seq=5),
    )
    assert kinds(presenter) == ["UserBlock", "AnswerBlock", "MarkBlock"]


def test_a_stored_session_in_which_a_run_has_no_end_does_not_seem_to_work() -> None:
    presenter = Presenter()
    presenter.load([StateEvent(state=AgentState.RUNNING, seq=1), user("one", 2)])
    assert not presenter.status.working
    assert presenter.status.activity == ""


def test_a_blocked_host_is_told_with_the_command_that_opens_it() -> None:
    result = ToolResult(
        call_id="c", tool_name="bash", output="", is_error=True, would_allow=("pypi.org", "pypi.org"), seq=2
    )
    (notice,) = [block for block in taken(user("one", 1), result).blocks if isinstance(block, NoticeBlock)]
    assert notice.message.count("/sandbox allow pypi.org ") == 1
    stored = Presenter()
    stored.load([user("one", 1), result])
    assert kinds(stored) == ["UserBlock", "ToolBlock"]


def test_files_going_back_leaves_the_conversation() -> None:
    presenter = taken(user("one", 1), user("two", 2), Rewind(to_seq=1, scope="files", seq=3))
    assert kinds(presenter) == ["UserBlock", "UserBlock", "MarkBlock"]


def test_another_agent_shows_as_one_block() -> None:
    presenter = taken(
        Subagent(action="start", profile="explore", task="look", agent_id="a1", seq=1),
        ToolCall(call_id="x", tool_name="grep", agent_id="a1", seq=2),
        AssistantMessage(content="inner words", agent_id="a1", seq=3),
        meta(4).model_copy(update={"agent_id": "a1"}),
    )
    assert kinds(presenter) == ["SubagentBlock"]
    block = presenter.blocks[0]
    assert isinstance(block, SubagentBlock)
    assert (block.activity, block.steps, block.live) == ("grep", 1, True)
    presenter.take(
        Subagent(
            action="end",
            profile="explore",
            result="found",
            stop_reason=StopReason.END_TURN,
            agent_id="a1",
            seq=5,
        )
    )
    assert (block.result, block.live) == ("found", False)
    assert presenter.status.cost_usd == 0.5


def test_agents_that_wait_for_a_place_say_so_and_move_up() -> None:
    presenter = taken(
        *(
            Subagent(action="start", profile="p", task=f"job {n}", queued=wait, agent_id=f"a{n}", seq=n)
            for n, wait in enumerate((None, 0, 1, 2), 1)
        ),
        ToolCall(call_id="x", tool_name="grep", agent_id="a1", seq=5),
    )

    def waits() -> list[int | None]:
        return [block.waits for block in presenter.blocks if isinstance(block, SubagentBlock)]

    assert waits() == [None, 0, 1, 2]
    assert [act for _, act in facts_of(presenter).agents] == [
        "grep",
        "waits: job 2",
        "waits: job 3",
        "waits: job 4",
    ]
    shown = [
        "".join(text for text, _ in render_block(block, 60, "folded")[0].runs) for block in presenter.blocks
    ]
    assert shown[0] == "◆ p job 1"
    assert shown[1].endswith("waits, the next")
    assert shown[2].endswith("waits, 1 before it")
    presenter.take(Subagent(action="end", profile="p", agent_id="a3", seq=6))
    assert waits() == [None, 0, None, 1]
    presenter.take(ToolCall(call_id="y", tool_name="grep", agent_id="a2", seq=7))
    assert waits() == [None, None, None, 0]


def test_attachments_are_named() -> None:
    image = ImageBlock(media_type="image/png", data="AAAA", name="shot.png")
    presenter = taken(UserMessage(content=(image, TextBlock(text="see")), seq=1))
    block = presenter.blocks[0]
    assert isinstance(block, UserBlock)
    assert (block.text, block.attachments) == ("see", ("shot.png",))


def test_drain_tells_each_change_once() -> None:
    presenter = Presenter(clock=Clock())
    presenter.take(user("hi"))
    first = presenter.drain()
    assert [type(block) for block in first.appended] == [UserBlock]
    assert not presenter.drain()
    presenter.take(StreamChunk(text="a"))
    assert len(presenter.drain().appended) == 1
    presenter.take(StreamChunk(text="b"))
    changes = presenter.drain()
    assert (changes.appended, changes.changed) == ([], {presenter.blocks[-1].key})


def test_what_came_and_went_between_two_drains_is_never_shown() -> None:
    presenter = Presenter(clock=Clock())
    presenter.take(StreamChunk(text="gone"))
    presenter.take(Retry(attempt=1, delay_s=0, error_kind="network", message="x", discard=True, seq=1))
    assert [type(block) for block in presenter.drain().appended] == [MarkBlock]


def test_older_events_stand_before_the_present_ones() -> None:
    presenter = Presenter(clock=Clock())
    presenter.load([user("third", 5), AssistantMessage(content="3", seq=6)])
    older = presenter.prepend([user("first", 1), AssistantMessage(content="1", seq=2), user("second", 3)])
    assert len(older) == 3
    assert [block.text for block in presenter.prompts()] == ["first", "second", "third"]
    keys = [block.key for block in presenter.blocks]
    assert keys == sorted(set(keys))


def test_unknown_events_are_skipped_and_models_switch() -> None:
    presenter = taken(
        UnknownEvent(type="hologram", seq=1), ModelSwitch(from_model="a/b", to_model="c/d", reason="r", seq=2)
    )
    assert kinds(presenter) == ["MarkBlock"]
    assert presenter.status.model == "c/d"
    assert presenter.status.last_seq == 2


_PIECES = st.lists(
    st.one_of(
        st.builds(StreamChunk, text=st.text(min_size=1, max_size=5)),
        st.builds(StreamChunk, reasoning_text=st.text(min_size=1, max_size=5)),
        st.just(StreamChunk(finished=True)),
        st.builds(
            lambda index: StreamChunk(tool_call_fragment={"index": index, "name": "t", "arguments": "{}"}),
            st.integers(0, 2),
        ),
        st.builds(lambda text: AssistantMessage(content=text, seq=1), st.text(max_size=5)),
        st.just(Reasoning(content="r", seq=1)),
        st.builds(lambda name: ToolCall(call_id=name, tool_name="t", seq=1), st.sampled_from("abc")),
        st.builds(lambda name: ToolProgress(call_id=name, text="p"), st.sampled_from("abcd")),
        st.builds(
            lambda name: ToolResult(call_id=name, tool_name="t", output="o", seq=1), st.sampled_from("abcd")
        ),
        st.just(meta()),
        st.just(Retry(attempt=1, delay_s=0, error_kind="network", message="x", discard=True, seq=1)),
        st.just(StateEvent(state=AgentState.RUNNING, seq=1)),
        st.just(StateEvent(state=AgentState.CANCELLED, stop_reason=StopReason.CANCELLED, seq=1)),
    ),
    max_size=40,
)


@given(_PIECES, st.sets(st.integers(0, 40)))
def test_applying_the_changes_gives_the_blocks_whenever_they_are_taken(
    events: list[Event], drains: set[int]
) -> None:
    presenter = Presenter(clock=Clock())
    shown: list[Any] = []

    def apply() -> None:
        changes = presenter.drain()
        shown[:] = [block for block in shown if block.key not in changes.removed] + changes.appended

    for place, event in enumerate(events):
        presenter.take(event)
        if place in drains:
            apply()
    apply()
    assert shown == presenter.blocks
    presenter.take(StateEvent(state=AgentState.COMPLETED, stop_reason=StopReason.END_TURN, seq=1))
    assert not any(
        isinstance(block, AnswerBlock | ThinkingBlock) and block.live for block in presenter.blocks
    ), "nothing streams after the end of a run"
