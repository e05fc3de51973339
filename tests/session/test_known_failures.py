"""What sessions of other tools of this field are known to fail at, one test each."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.protocol.errors import StorageError
from aar.protocol.events import AssistantMessage, Compaction, Notice, ToolCall, ToolResult
from tests.session.sequences import check
from tests.session.support import new_session, path_of, texts, user


def test_a_torn_line_does_not_make_the_whole_session_blank(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(*(user(f"prompt {number}") for number in range(20)))
    session.close()
    path = path_of(store, session)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:10], lines[10][:30], b"\n", *lines[11:], b'{"type":"user_mess']))
    again = Session.resume(store, session.session_id)
    assert len(texts(list(again.events()))) == 19
    assert store.list()[0].title == "prompt 0"
    again.close()


def test_a_session_is_listed_though_the_index_never_saw_it(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("from a backup"))
    session.close()
    assert len(store.list()) == 1
    elsewhere = SessionStore(tmp_path / "new" / "sessions")
    shutil.copytree(path_of(store, session).parent, elsewhere.root / path_of(store, session).parent.name)
    assert [info.title for info in elsewhere.list()] == ["from a backup"]
    assert elsewhere.search("backup")[0].session.id == session.session_id


def test_going_on_opens_the_session_of_this_folder_not_the_newest_of_all(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions")
    folders = [tmp_path / "one", tmp_path / "two"]
    ids: list[str] = []
    for folder in folders:
        folder.mkdir()
        session = Session.create(store, cwd=folder, model=None)
        session.append(user(folder.name))
        session.close()
        ids.append(session.session_id)
    assert [store.latest(folder) for folder in folders] == ids


def test_a_call_cut_off_by_a_crash_does_not_make_the_next_request_invalid(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    run = session.scope("R")
    run.append(user("go"))
    run.step = 1
    run.append(ToolCall(call_id="a", tool_name="bash"), ToolCall(call_id="b", tool_name="bash"))
    run.append(ToolResult(call_id="a", tool_name="bash", output="ok"))
    session.close()
    again = Session.resume(store, session.session_id)
    check(again.messages())
    assert [result.call_id for result in again.messages()[-1].content] == ["a", "b"]
    again.close()


def test_resuming_many_times_does_not_repeat_or_drop_messages(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("once"), AssistantMessage(content="yes", run_id="R", step=1))
    session.close()
    before = session.messages()
    for _ in range(5):
        session = Session.resume(store, session.session_id)
        assert session.messages() == before
        session.close()


def test_a_project_that_was_moved_keeps_its_sessions_reachable(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("needle"))
    session.close()
    assert store.find(session.session_id[:20]) == session.session_id
    copy = Session.fork(store, session.session_id, cwd=tmp_path / "moved")
    assert copy.cwd == (tmp_path / "moved").resolve()
    assert store.latest(tmp_path / "moved") == copy.session_id
    copy.close()


def test_two_processes_do_not_mix_their_events_in_one_file(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    with pytest.raises(StorageError, match=r"aar run --fork .*aar sessions show"):
        Session.resume(store, session.session_id)
    assert len(list(store.read(session.session_id))) == 1
    session.close()


def test_a_death_while_compacting_leaves_a_session_that_opens_with_all_of_it(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    run = session.scope("R")
    run.append(user("the task"))
    for step in range(1, 6):
        run.step = step
        run.append(AssistantMessage(content=f"answer {step}"), user(f"more {step}"))
    size = path_of(store, session).stat().st_size
    seq = session.last_seq
    run.append(Compaction(summary="what was " * 5000, first_kept_seq=seq))
    session.close()
    path = path_of(store, session)
    whole = path.read_bytes()
    for cut in (size + 1, size + 100, (size + len(whole)) // 2, len(whole) - 2):
        path.write_bytes(whole[:cut])
        again = Session.resume(store, session.session_id)
        assert "the task" in again.messages()[0].text
        assert again.totals.compactions == {}
        again.close()


def test_lines_of_megabytes_are_read_from_the_end_and_as_a_whole(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    for number in range(3):
        session.append(user(f"{number}" + "x" * 1_000_000))
    session.append(user("end"))
    session.close()
    began = time.process_time()
    assert texts(store.tail(session.session_id, 1)) == ["end"]
    assert time.process_time() - began < 1
    assert [len(text) for text in texts(list(store.read(session.session_id)))] == [1_000_001] * 3 + [3]
    assert store.list()[0].events == 5


def test_lone_surrogates_from_a_model_do_not_spoil_the_file(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(AssistantMessage(content="half a pair \ud83d", run_id="R", step=1))
    session.append(ToolCall(call_id="c\udc00", tool_name="bash", arguments={"k\ud800": ["v\udfff"]}))
    session.close()
    path_of(store, session).read_bytes().decode("utf-8")
    again = Session.resume(store, session.session_id)
    assert not [event for event in again.events() if isinstance(event, Notice)]
    again.close()


def test_an_escaped_lone_surrogate_in_a_foreign_line_costs_that_line_only(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("before"))
    session.close()
    path = path_of(store, session)
    line = json.loads(path.read_bytes().splitlines()[-1])
    line.update(seq=3, id="01M" + "0" * 22 + "1")
    line["content"][0]["text"] = "\ud800"
    path.write_bytes(path.read_bytes() + json.dumps(line).encode() + b"\n")
    again = Session.resume(store, session.session_id)
    assert texts(list(again.events()))[0] == "before"
    again.append(user("after"))
    assert texts(list(again.events()))[-1] == "after"
    again.close()


def test_a_session_on_a_disk_that_became_read_only_goes_on_and_is_saved_later(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("before"))
    path = path_of(store, session)
    file = session._file
    good, file._fd = file._fd, os.open(path, os.O_RDONLY)
    session.append(user("while read-only"))
    assert session.degraded
    os.close(file._fd)
    file._fd = good
    session.append(user("after"))
    assert not session.degraded
    assert texts(list(store.read(session.session_id))) == ["before", "while read-only", "after"]
    session.close()


async def test_who_closes_a_session_that_could_not_be_saved_is_told_what_is_lost(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    told: list[str] = []
    session.on_event(lambda event: told.append(event.message) if isinstance(event, Notice) else None)
    file = session._file
    good, file._fd = file._fd, os.open(os.devnull, os.O_RDONLY)
    session.append(user("never saved"))
    await session.aclose()
    os.close(good)
    assert any(message.startswith("2 events of this session could not be saved") for message in told), told


def test_the_file_holds_no_stream_pieces_and_little_besides_its_text(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    run = session.scope("R")
    run.append(user("go"))
    said = 0
    for step in range(1, 21):
        run.step = step
        result = ToolResult(
            call_id=f"c{step}",
            tool_name="bash",
            output="a line of output of a command, about as long as they are\n" * 100,
        )
        run.append(AssistantMessage(content="words " * 100), ToolCall(call_id=f"c{step}", tool_name="bash"))
        run.append(result)
        said += 600 + len(result.output)
    size = path_of(store, session).stat().st_size
    session.close()
    assert b"stream_chunk" not in path_of(store, session).read_bytes()
    assert size < 1.2 * said
