"""Session files: what is in them, and what becomes of damaged ones."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.core.session import Session
from aar.memory.event_lines import Problem, tail_events
from aar.memory.memory_store import MemoryStore
from aar.memory.session_store import project_key
from aar.protocol.errors import StorageError
from aar.protocol.events import (
    AssistantMessage,
    Event,
    Notice,
    ProviderMeta,
    ToolCall,
    ToolResult,
    UnknownEvent,
    parse_event,
)
from aar.protocol.ids import new_id
from aar.protocol.usage import Usage
from tests.session.sequences import check, real_history
from tests.session.support import new_session, path_of, texts, user


def test_files_and_folders_are_private_and_in_the_project_s_folder(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    path = path_of(store, session)
    digest = hashlib.sha256(os.fsencode(tmp_path.resolve())).hexdigest()[:12]
    assert path.parent.name == f"{tmp_path.name}-{digest}" == project_key(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE(store.root.stat().st_mode) == 0o700
    session.close()


def test_a_project_key_has_no_odd_characters(tmp_path: Path) -> None:
    assert project_key(tmp_path / "my pröject\n!").startswith("my-pr-ject-")
    assert project_key(Path("/")).startswith("root-")


def test_every_event_is_one_line_of_utf8_and_on_disk_when_append_returns(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("Grüße\n\u2028日本"), user("2"))
    lines = path_of(store, session).read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3]
    assert texts([parse_event(line) for line in lines]) == ["Grüße\n\u2028日本", "2"]
    session.close()


def test_reading_can_start_anywhere_and_the_tail_reads_only_the_end(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(*(user(f"{number} " + "x" * 500) for number in range(2000)))
    session.close()
    assert [event.seq for event in store.read(session.session_id, 1999)] == [1999, 2000, 2001]
    assert [event.seq for event in store.tail(session.session_id, 3)] == [1999, 2000, 2001]
    assert len(store.tail(session.session_id, 5000)) == 2001
    path = store.path(session.session_id)
    with path.open("r+b") as file:
        file.write(b"\xff" * 1000)
    assert [event.seq for event in tail_events(path, 2)] == [2000, 2001]


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 200_000), min_size=1, max_size=6), count=st.integers(1, 8))
def test_the_tail_is_the_end_of_the_whole_for_lines_of_any_length(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], count: int
) -> None:
    store, session = new_session(tmp_path_factory.mktemp("tail"))
    session.append(*(user("y" * size) for size in sizes))
    session.close()
    assert store.tail(session.session_id, count) == list(store.read(session.session_id))[-count:]


def test_a_torn_last_line_is_put_aside_and_the_file_goes_on(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("kept"))
    session.close()
    path = path_of(store, session)
    torn = b'{"type":"user_message","id":"01ABC","se'
    with path.open("ab") as file:
        file.write(torn)
    again = Session.resume(store, session.session_id)
    assert path.with_suffix(".d").joinpath("torn-1").read_bytes() == torn
    again.append(user("new"))
    events = list(again.events())
    assert texts(events) == ["kept", "new"]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.code for event in events if isinstance(event, Notice)] == ["session_repaired"]
    again.close()


def test_a_whole_last_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("last"))
    session.close()
    path = path_of(store, session)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    again = Session.resume(store, session.session_id)
    assert texts(list(again.events())) == ["last"]
    assert not path.with_suffix(".d").exists()
    again.close()


def test_bad_lines_in_the_middle_are_skipped_and_told_with_their_numbers(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("one"), user("two"), user("three"))
    session.close()
    path = path_of(store, session)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"type":"user_message"}\n'
    lines[1:1] = [b"\x00\x00 not json\n", b"\n", b"[1, 2]\n"]
    path.write_bytes(b"".join(lines))
    problems: list[Problem] = []
    assert texts(list(store.read(session.session_id, problems=problems))) == ["one", "three"]
    assert [problem.line for problem in problems] == [2, 4, 6]


def test_bad_utf8_inside_a_line_is_replaced_and_the_line_kept(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("caf@"))
    session.close()
    path = path_of(store, session)
    path.write_bytes(path.read_bytes().replace(b"caf@", b"caf\xe9"))
    assert texts(list(store.read(session.session_id))) == ["caf\ufffd"]


def test_a_line_that_stands_twice_counts_once(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("once"))
    session.close()
    path = path_of(store, session)
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])
    assert texts(list(store.read(session.session_id))) == ["once"]


def test_an_event_of_an_unknown_type_is_kept(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(UnknownEvent(type="hologram", depth=3))
    session.close()
    last = store.tail(session.session_id, 1)[0]
    assert (last.type, last.model_extra) == ("hologram", {"depth": 3})
    Session.resume(store, session.session_id).close()


def test_a_file_of_a_newer_format_can_be_read_but_not_written(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("from the future"))
    session.close()
    path = path_of(store, session)
    path.write_bytes(path.read_bytes().replace(b'"schema_version":1', b'"schema_version":99'))
    before = path.read_bytes()
    assert texts(list(store.read(session.session_id))) == ["from the future"]
    for attempt in (Session.resume, Session.fork):
        with pytest.raises(StorageError, match="newer aar"):
            attempt(store, session.session_id)
    assert path.read_bytes() == before


def test_an_empty_file_can_be_gone_on_with(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.close()
    path_of(store, session).write_bytes(b"")
    again = Session.resume(store, session.session_id)
    assert again.append(user("hello"))[0].seq == 2
    again.close()


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1))
def test_a_file_cut_at_any_byte_is_resumed_with_all_whole_events(
    tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    store, session = new_session(tmp_path_factory.mktemp("cut"))
    run = session.scope("R")
    run.append(user("go"))
    for step in (1, 2):
        run.step = step
        run.append(
            AssistantMessage(content="a"), *(ToolCall(call_id=f"{step}{n}", tool_name="t") for n in "ab")
        )
        run.append(*(ToolResult(call_id=f"{step}{n}", tool_name="t", output="ok") for n in "ab"))
    session.close()
    path = path_of(store, session)
    data = path.read_bytes()
    cut = round(share * len(data))
    path.write_bytes(data[:cut])
    again = Session.resume(store, session.session_id)
    events = list(again.events())
    whole = [parse_event(line) for line in data[:cut].split(b"\n")[:-1]]
    assert events[: len(whole)] == whole
    calls = [event.call_id for event in events if isinstance(event, ToolCall)]
    assert sorted(calls) == sorted(event.call_id for event in events if isinstance(event, ToolResult))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    check(again.messages())
    again.close()


def test_sessions_are_listed_with_what_a_picker_shows(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    meta = ProviderMeta(provider="p", model="m", usage=Usage(input=3), cost_usd=0.25)
    session.append(user("\nfix the bug\nplease"), meta, meta.model_copy(update={"cost_usd": None}))
    session.close()
    [info] = store.list(tmp_path)
    assert info.to_dict() == {
        "id": session.session_id,
        "title": "fix the bug",
        "cwd": str(tmp_path.resolve()),
        "model": "scripted/x",
        "updated": store.tail(session.session_id, 1)[0].ts,
        "events": 4,
        "cost_usd": 0.25,
    }
    assert not info.cost_known
    assert store.list(tmp_path / "elsewhere") == []


def test_the_latest_session_is_that_of_the_folder_written_last(tmp_path: Path) -> None:
    store, first = new_session(tmp_path)
    second = Session.create(store, cwd=tmp_path, model=None)
    other = Session.create(store, cwd=tmp_path.parent, model=None)
    os.utime(store.path(second.session_id), ns=(1, 1))
    assert store.latest(tmp_path) == first.session_id
    assert store.latest(tmp_path / "nothing") is None
    for session in (first, second, other):
        session.close()


def test_a_session_is_found_by_the_start_of_its_id(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.close()
    assert store.find(session.session_id[:20].lower()) == session.session_id
    other = store.create(session.session_id[:20] + "ZZZZZZ", tmp_path)
    other.close()
    with pytest.raises(StorageError, match="2 sessions start with"):
        store.find(session.session_id[:20])
    with pytest.raises(StorageError, match="No session starts with"):
        store.find("zzzz")
    assert store.find(session.session_id) == session.session_id


def test_an_id_that_is_a_path_or_a_pattern_is_refused(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    for bad in ("../x", "*", "", "a/b"):
        with pytest.raises(StorageError):
            store.open(bad)
    with pytest.raises(StorageError, match="no session"):
        store.open(new_id())
    session.close()


def test_a_deleted_session_is_gone_and_an_open_one_is_not_deleted(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    with pytest.raises(StorageError, match="is open in"):
        store.delete(session.session_id)
    path = path_of(store, session)
    session.close()
    path.with_suffix(".d").mkdir()
    store.delete(session.session_id)
    assert not store.exists(session.session_id)
    assert list(path.parent.iterdir()) == []


def test_the_memory_store_does_the_same_without_a_file(tmp_path: Path) -> None:
    store = MemoryStore()
    session = Session.create(store, cwd=tmp_path, model="m")
    session.append(user("hi"), ToolCall(call_id="a", tool_name="t"))
    with pytest.raises(StorageError, match="open already"):
        Session.resume(store, session.session_id)
    session.close()
    again = Session.resume(store, session.session_id)
    assert [event.type for event in store.tail(session.session_id, 2)] == ["session", "tool_result"]
    fork = Session.fork(store, session.session_id, 2)
    assert texts(list(fork.events())) == ["hi"]
    assert {info.title for info in store.list(tmp_path)} == {"hi"}
    assert store.latest(tmp_path) == fork.session_id == store.find(fork.session_id)
    store.delete(fork.session_id)
    assert not store.exists(fork.session_id)
    again.close()


def test_ids_and_seqs_increase_also_when_the_clock_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, session = new_session(tmp_path)
    session.append(user("late"))
    session.close()
    path = path_of(store, session)
    last = store.tail(session.session_id, 1)[0].id
    # As if it had been written a century from now.
    path.write_bytes(path.read_bytes().replace(last.encode(), b"7ZZZZZZZZZ" + last[10:24].encode() + b"ZZ"))
    again = Session.resume(store, session.session_id)
    again.append(user("now"), user("and now"))
    events: list[Event] = list(again.events())
    assert [event.id for event in events] == sorted({event.id for event in events})
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    again.close()


@settings(max_examples=60, deadline=None)
@given(events=real_history())
def test_every_event_is_read_back_exactly_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event]
) -> None:
    _, session = new_session(tmp_path_factory.mktemp("trip"))
    stored = session.append(*events)
    assert tuple(session.events(2)) == stored
    assert tuple(parse_event(event.to_json()) for event in stored) == stored
    session.close()
