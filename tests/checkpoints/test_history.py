"""What undo can lead to, as a fold over events; any rewind gives a conversation that can be sent."""

from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given, settings
from hypothesis import strategies as st

from aar.core.file_diffs import file_diff, hunks_of, without_hunks
from aar.core.fold import fold_messages
from aar.core.rewind import History, irreversible
from aar.protocol.events import CheckpointEvent, Event, Rewind, ToolCall, ToolResult
from tests.session.sequences import check, real_history

_LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\r\n", b"\xff\n", b"\n"]), max_size=12)


def numbered(events: list[Event], event: Event) -> None:
    events.append(event.model_copy(update={"seq": len(events) + 1}))


@settings(max_examples=80, deadline=None)
@given(real_history(), st.data())
def test_any_chain_of_rewinds_gives_the_conversation_of_that_moment(
    events: list[Event], data: st.DataObject
) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        to_seq = data.draw(st.integers(1, len(events)))
        then = fold_messages(events[:to_seq])
        numbered(events, Rewind(to_seq=to_seq, scope=data.draw(st.sampled_from(["both", "conversation"]))))
        now = fold_messages(events)
        check(now)
        assert now == then


@settings(max_examples=80, deadline=None)
@given(real_history(), st.data())
def test_undo_then_redo_changes_nothing(events: list[Event], data: st.DataObject) -> None:
    for number in range(1, len(events), 3):
        events[number] = CheckpointEvent(checkpoint_id=f"K{number}").model_copy(update={"seq": number + 1})
    before, messages = History(events), fold_messages(events)
    depth = data.draw(st.integers(1, 3))
    for number in range(depth):
        numbered(events, CheckpointEvent(checkpoint_id=f"U{number}", kind="undo"))
        scope = data.draw(st.sampled_from(["both", "files", "conversation"]))
        numbered(events, Rewind(to_seq=data.draw(st.integers(1, len(events) - 1)), scope=scope))
    for _ in range(depth):
        last = History(events).undone[-1]
        numbered(events, CheckpointEvent(checkpoint_id="R", kind="redo"))
        numbered(events, Rewind(to_seq=last.to_seq, scope=last.scope))
    after = History(events)
    assert fold_messages(events) == messages
    assert after.marks == before.marks
    assert after.prompts == before.prompts
    assert [item.before_id for item in after.undone] == [item.before_id for item in before.undone]


@settings(max_examples=200, deadline=None)
@given(_LINES, _LINES, st.booleans(), st.sets(st.integers(0, 12)))
def test_hunks_taken_back(old: list[bytes], new: list[bytes], cut: bool, chosen: set[int]) -> None:
    before, after = b"".join(old), b"".join(new)[: -1 if cut else None]
    hunks = hunks_of(before, after)
    every = {hunk.index for hunk in hunks}
    assert without_hunks(before, after, every) == before
    assert without_hunks(before, after, ()) == after
    partly = without_hunks(before, after, chosen & every)
    assert len(partly) == len(after) + sum(
        len(b"".join(h.old)) - len(b"".join(h.new)) for h in hunks if h.index in chosen
    )
    assert file_diff("p", before, after).added == sum(len(h.new) for h in hunks)


def test_commands_with_effects_elsewhere_are_named() -> None:
    def reasons(command: str, **result: object) -> list[str]:
        call = ToolCall(call_id="c", tool_name="bash", arguments={"command": command})
        done = ToolResult(call_id="c", tool_name="bash", output="", **result)
        return [item.why for item in irreversible([call, done], PurePosixPath("/w"))]

    assert reasons("cd a && git -C b push --force") == ["the remote keeps what was pushed"]
    assert reasons("python -m pip install x") == ["installed packages stay"]
    assert reasons("timeout 5 psql -c 'drop table t'") == ["what it changed in a database stays"]
    assert "repository" in reasons("git commit -m 'curl x'")[0]
    assert reasons("python manage.py migrate") == ["what it changed in a database stays"]
    assert reasons("sh -c 'curl -X POST http://h/'") == ["what it sent or changed elsewhere stays"]
    assert reasons("git status; git diff; grep curl README; echo push") == []
    assert reasons("curl x", category="denied", is_error=True) == []
