"""The index of sessions is a cache: right, fast, and never in the way."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from aar.core.session import Session
from aar.memory.session_index import SessionIndex
from aar.memory.session_store import SessionStore
from aar.memory.session_words import MARKS
from aar.protocol.events import AssistantMessage, ProviderMeta, ToolCall, ToolResult
from aar.protocol.usage import Usage
from tests.session.support import new_session, path_of, user


def talk(root: Path, prompt: str, *answers: str, title: str | None = None) -> str:
    """Store a session of one run and return its id."""
    store = SessionStore(root / "sessions")
    session = Session.create(store, cwd=root, model="p/m", title=title)
    run = session.scope("R")
    run.append(user(prompt))
    run.step = 1
    for answer in answers:
        run.append(AssistantMessage(content=answer))
    run.append(ToolCall(call_id="c", tool_name="bash", arguments={"command": "pytest tests/test_money.py"}))
    run.append(ProviderMeta(provider="p", model="m", usage=Usage(input=1), cost_usd=0.25))
    run.append(ToolResult(call_id="c", tool_name="bash", output="FAILED test_rounding - ZeroDivisionError"))
    session.close()
    return session.session_id


def found(root: Path, query: str, cwd: Path | None = None) -> list[str]:
    return [hit.session.id for hit in SessionStore(root / "sessions").search(query, cwd)]


@pytest.mark.parametrize(
    ("query", "there"),
    [
        ("parser", True),
        ("PARSER breaks", True),
        ("pars", True),
        ("arser", False),
        ("parser ZeroDivisionError", False),
        ('"quick fox"', False),
        ('"fox quick"', True),
        ("解析", True),
        ("壊れ", False),
        ("naive cafe", True),
        ("", False),
        ("* - ( )", False),
        ('" OR NEAR(', False),
        ("\x00 parser", True),
    ],
)
def test_search_finds_words_of_prompts_answers_calls_and_outputs(
    tmp_path: Path, query: str, there: bool
) -> None:
    one = talk(tmp_path, "The parser breaks on empty input", "naïve café, fox quick", "文件解析错误")
    talk(tmp_path, "Something else", "Done.")
    assert found(tmp_path, query) == ([one] if there else [])


@pytest.mark.parametrize(
    "query", ["ZeroDivisionError", "tests/test_money.py", "test_rounding", '"FAILED test"']
)
def test_search_finds_calls_and_outputs_of_tools(tmp_path: Path, query: str) -> None:
    one = talk(tmp_path, "words")
    (hit,) = SessionStore(tmp_path / "sessions").search(query)
    assert (hit.session.id, hit.kind) == (one, "tool")


def test_a_hit_tells_where_and_how_often(tmp_path: Path) -> None:
    one = talk(tmp_path, "needle", "a needle in the hay", "needle")
    (hit,) = SessionStore(tmp_path / "sessions").search("needle")
    assert (hit.session.id, hit.count) == (one, 3)
    assert MARKS[0] + "needle" + MARKS[1] in hit.snippet
    assert hit.to_dict()["hits"] == 3
    assert MARKS[0] not in str(hit.to_dict()["snippet"])


def test_search_can_be_limited_to_a_folder(tmp_path: Path) -> None:
    mine = talk(tmp_path, "needle")
    assert found(tmp_path, "needle", tmp_path) == [mine]
    assert found(tmp_path, "needle", tmp_path / "other") == []


def test_a_list_from_the_index_is_that_of_a_scan_after_each_change(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    with SessionIndex(store.root) as index:
        for number in range(5):
            session.append(user(f"prompt {number}"))
            (info,) = index.list()
            assert (info.events, info.title) == (number + 2, "prompt 0")
            assert info.size == path_of(store, session).stat().st_size
        session.rename("A better title")
        assert index.list()[0].title == "A better title"
        assert index.search("better")[0].kind == "title"
    session.close()


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    one = talk(tmp_path, "the first words")
    store = SessionStore(tmp_path / "sessions")
    assert found(tmp_path, "first") == [one]
    path = store.path(one)
    path.write_bytes(path.read_bytes().replace(b"the first words", b"quite other wordings"))
    assert found(tmp_path, "first") == []
    assert found(tmp_path, "quite other") == [one]
    store.delete(one)
    assert found(tmp_path, "quite other") == []
    assert store.list() == []


def test_a_torn_line_is_not_counted_until_it_is_whole(tmp_path: Path) -> None:
    one = talk(tmp_path, "words")
    store = SessionStore(tmp_path / "sessions")
    path = store.path(one)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    before = store.list()[0].events
    path.write_bytes(whole)
    assert store.list()[0].events == before + 1


def _garbage(file: Path) -> None:
    file.write_bytes(b"not a database " * 1000)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def _scramble(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4096:12000] = os.urandom(12000 - 4096)
    file.write_bytes(bytes(data))


def _other_tables(file: Path) -> None:
    file.unlink()
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE files (something TEXT)")
        database.execute("PRAGMA user_version = 1")
    database.close()


def _wrong_values(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("UPDATE files SET size = 'many', events = NULL")
    database.close()


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _missing(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(
    "damage", [_garbage, _cut, _scramble, _other_tables, _wrong_values, _folder, _missing]
)
def test_a_damaged_index_is_made_anew(tmp_path: Path, damage) -> None:
    one = talk(tmp_path, "needle")
    assert found(tmp_path, "needle") == [one]
    damage(tmp_path / "sessions" / "session_index.sqlite")
    assert found(tmp_path, "needle") == [one]
    assert [info.title for info in SessionStore(tmp_path / "sessions").list()] == ["needle"]


def test_an_index_that_another_process_holds_does_not_stop_a_list(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("aar.memory.session_index._WAIT_S", 0.05)
    one = talk(tmp_path, "needle")
    assert found(tmp_path, "needle") == [one]
    two = talk(tmp_path, "needle again")
    file = tmp_path / "sessions" / "session_index.sqlite"
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    assert set(found(tmp_path, "needle")) == {one, two}
    assert time.monotonic() - began < 60
    holder.execute("ROLLBACK")
    holder.close()
    assert set(found(tmp_path, "needle")) == {one, two}


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_searched_in_memory(tmp_path: Path) -> None:
    one = talk(tmp_path, "needle")
    root = tmp_path / "sessions"
    root.chmod(0o500)
    try:
        assert found(tmp_path, "needle") == [one]
    finally:
        root.chmod(0o700)


def test_the_index_is_for_the_owner_only(tmp_path: Path) -> None:
    talk(tmp_path, "needle")
    SessionStore(tmp_path / "sessions").list()
    mode = (tmp_path / "sessions" / "session_index.sqlite").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_list_of_two_thousand_sessions_is_there_at_once(tmp_path: Path) -> None:
    one = talk(tmp_path, "the same for all")
    store = SessionStore(tmp_path / "sessions")
    text = store.path(one).read_bytes()
    for number in range(2000):
        (store.path(one).parent / f"{number:026d}.jsonl").write_bytes(text)
    assert len(store.list()) == 2001
    began = time.process_time()
    assert len(store.list()) == 2001
    assert time.process_time() - began < 3
