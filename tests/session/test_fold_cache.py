"""What a long session was folded to is kept beside it: quick, and never another answer than the whole file's."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.core.session import Session
from aar.core.totals import RunTotals, TotalsFold
from aar.memory import event_lines, fold_cache
from aar.memory.event_lines import Place
from aar.memory.session_store import SessionStore
from aar.protocol.events import (
    AssistantMessage,
    Compaction,
    Event,
    Notice,
    PlanEvent,
    PlanItem,
    Rewind,
    SessionEvent,
    ToolCall,
)
from aar.protocol.state import AgentState, StopReason
from tests.session.sequences import chaos, check, real_history
from tests.session.support import new_session, path_of, texts, user
from tests.support.waiting import until


@pytest.fixture(autouse=True, scope="module")
def everything_is_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_cache, "LEAST_BYTES", 1)
        yield


def kept_of(path: Path) -> Path:
    return path.with_suffix(".d") / "folded"


def state_of(session: Session) -> dict[str, Any]:
    """Return all that the folds of a session tell."""
    told = {name: session.messages(name) for name in ("main", "sub-1")}
    for messages in told.values():
        check(messages)
    notices = [event.message for event in session.events() if isinstance(event, Notice)]
    place = session.last_seq, session.trace_id, session.cwd
    return {**told, "totals": numbers_of(session.totals), "notices": notices, "place": place}


def numbers_of(totals: TotalsFold) -> dict[str, Any]:
    """Return all attributes: also one that somebody adds and forgets to keep."""
    told = {name: value for name, value in vars(totals).items() if name != "_handlers"}
    opened = {name: list(calls) for name, calls in told.pop("_open").items() if calls}
    return {**told, "open": opened, "places": [call.id != "" for call in totals.open_calls()]}


def both(store: SessionStore, name: str) -> tuple[Session, Session]:
    """Resume a session with what was kept of it, and a copy of its file without."""
    path = store.path(name)
    bare = SessionStore(store.root.parent / "bare")
    shutil.rmtree(bare.root, ignore_errors=True)
    (bare.root / path.parent.name).mkdir(parents=True)
    shutil.copy(path, bare.root / path.parent.name)
    return Session.resume(store, name), Session.resume(bare, name)


def lines_of(events: Sequence[Event], after: int, torn: int | None) -> bytes:
    """Return ``events`` as lines of a session behind event ``after``; one of them cut in the middle."""
    lines: list[bytes] = []
    for number, event in enumerate(events):
        stamps = {"seq": after + number + 1, "id": f"01Z{after + number:023d}", "trace_id": "t"}
        if isinstance(event, Rewind):
            stamps["to_seq"] = event.to_seq + after if event.to_seq % 2 else event.to_seq
        if isinstance(event, Compaction):
            stamps["first_kept_seq"] = event.first_kept_seq + after
        lines.append(event.model_copy(update=stamps).to_json().encode())
    if torn is not None and lines:
        lines[torn % len(lines)] = lines[torn % len(lines)][:40]
    return b"".join(line + b"\n" for line in lines)


HISTORIES = st.one_of(chaos(), real_history())


def test_every_attribute_of_the_totals_is_kept() -> None:
    totals = TotalsFold()
    for name, value in vars(totals).items():
        if isinstance(value, str | int | None) and name != "stop_reason":
            setattr(totals, name, 7 if isinstance(value, int) else "seven")
        elif isinstance(value, RunTotals):
            value.steps = 7
        elif isinstance(value, dict) and name in {"runs", "agents", "models"}:
            value["x"] = RunTotals(cost_usd=0.1, cost_known=False)
    totals.states["main"], totals.stop_reason = AgentState.RUNNING, StopReason.END_TURN
    totals.compactions["main"] = 7
    totals.task_plan = PlanEvent(items=(PlanItem(id="a", title="b"),), kind="plan")
    totals.plan = totals.task_plan.items
    totals.apply(ToolCall(call_id="c", tool_name="bash", run_id="R", step=1, id="01Z"))
    again = TotalsFold.load(json.loads(json.dumps(totals.dump())))
    assert numbers_of(again) == numbers_of(totals)


@settings(max_examples=60, deadline=None)
@given(HISTORIES, HISTORIES, st.none() | st.integers(0, 50), st.none() | st.integers(0, 50), st.data())
def test_a_session_from_its_cache_is_the_session_from_its_file(
    first: list[Event], second: list[Event], bad: int | None, worse: int | None, data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        store, session = new_session(Path(folder))
        session.close()
        name, path = session.session_id, path_of(store, session)
        with path.open("ab") as file:
            file.write(lines_of(first, session.last_seq, bad))
        session = Session.resume(store, name)
        session.close()
        assert kept_of(path).exists()
        # Another process went on, and was killed before it could keep anything.
        with path.open("ab") as file:
            file.write(lines_of(second, session.last_seq, worse))
        quick, whole = both(store, name)
        assert state_of(quick) == state_of(whole)
        to_seq = data.draw(st.integers(1, quick.last_seq))
        for session in (quick, whole):
            session.append(Rewind(to_seq=to_seq, scope="conversation"), user("and on"))
        assert state_of(quick) == state_of(whole)
        quick.close()
        whole.close()
        again, bare = both(store, name)
        for session in (again, bare):
            session.append(Rewind(to_seq=to_seq, scope="both"))
        assert state_of(again) == state_of(bare)
        again.close()
        bare.close()


@settings(max_examples=60, deadline=None)
@given(HISTORIES, HISTORIES)
def test_a_session_that_is_killed_after_it_was_kept_meanwhile_is_the_session_from_its_file(
    first: list[Event], second: list[Event]
) -> None:
    with TemporaryDirectory() as folder:
        store, session = new_session(Path(folder))
        for event in first:
            session.append(event)
        keeper = session._keeper
        assert keeper._cache is not None
        keep = keeper._keeping(keeper._cache, store.path(session.session_id).stat().st_size)
        # A thread does it; at the latest when all of this has changed.
        for event in second:
            session.append(event)
        keep()
        killed = SessionStore(Path(folder) / "killed")
        shutil.copytree(store.root, killed.root)
        quick, whole = both(killed, session.session_id)
        assert state_of(quick) == state_of(whole)
        for opened in (session, quick, whole):
            opened.close()


async def test_a_growing_session_is_kept_meanwhile_and_less_often_the_longer_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_cache, "STEP_BYTES", 5_000)
    saved: list[int] = []
    save = fold_cache.FoldCache.save

    def note(cache: fold_cache.FoldCache, place: Place, facts: dict[str, Any], turns: bytes) -> None:
        saved.append(place.offset)
        save(cache, place, facts, turns)

    monkeypatch.setattr(fold_cache.FoldCache, "save", note)
    store, session = new_session(tmp_path)
    for _ in range(200):
        session.append(user("x" * 500))
        await session.sync()
        await until(lambda: session._keeper._meanwhile is None)
    killed = SessionStore(tmp_path / "killed")
    shutil.copytree(store.root, killed.root)
    quick, whole = both(killed, session.session_id)
    assert state_of(quick) == state_of(whole)
    steps = [after - before for before, after in pairwise(saved)]
    assert steps[0] > 5_000
    assert steps == sorted(steps)
    assert 3 < len(saved) < 12
    for opened in (session, quick, whole):
        opened.close()


async def test_a_session_that_was_shortened_is_kept_when_it_is_synced(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("one"), user("two"))
    await session.sync()
    assert not kept_of(path_of(store, session)).exists()
    session.append(Compaction(summary="what was", first_kept_seq=3))
    await session.sync()
    await until(lambda: session._keeper._meanwhile is None)
    assert kept_of(path_of(store, session)).exists()
    session.close()


async def test_what_is_being_kept_at_the_end_of_a_session_does_not_come_back_after_it(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("one"))
    keeper, path = session._keeper, path_of(store, session)
    assert keeper._cache is not None
    late = keeper._keeping(keeper._cache, path.stat().st_size)
    session.append(user("two"))
    await session.aclose()
    kept = kept_of(path).read_bytes()
    late()
    assert kept_of(path).read_bytes() == kept
    store.delete(session.session_id)
    late()
    assert not kept_of(path).parent.exists()


def long_session(root: Path) -> tuple[SessionStore, str, Path]:
    store, session = new_session(root)
    run = session.scope("R")
    for step in range(1, 101):
        run.step = step
        run.append(user(f"prompt {step}"), AssistantMessage(content=f"answer {step}"))
    session.close()
    return store, session.session_id, path_of(store, session)


def test_opening_reads_no_event_that_was_folded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, name, _ = long_session(tmp_path)
    parsed: list[bytes] = []
    parse = event_lines._parse
    monkeypatch.setattr(event_lines, "_parse", lambda raw, head: parsed.append(raw) or parse(raw, head))
    session = Session.resume(store, name)
    assert len(session.messages()) == 200
    assert session.title == "prompt 1"
    # The first line for its version, the last one for its place, the new ones.
    assert len(parsed) < 6
    session.close()


def test_what_is_kept_is_of_no_use_to_another_file(tmp_path: Path) -> None:
    store, name, path = long_session(tmp_path)
    status = path.stat()
    path.write_bytes(path.read_bytes().replace(b"prompt 7", b"prompt X"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    session = Session.resume(store, name)
    assert session.messages()[12].text == "prompt X"
    session.close()


def test_a_copy_of_the_file_still_counts_as_the_file(tmp_path: Path) -> None:
    store, name, path = long_session(tmp_path)
    elsewhere = SessionStore(tmp_path / "backup")
    shutil.copytree(store.root, elsewhere.root)
    cache = fold_cache.FoldCache(elsewhere.path(name).with_suffix(".d"))
    kept = cache.load()
    assert kept is not None
    assert kept.place.offset == path.stat().st_size


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-20],
        lambda content: content.replace(b"answer 9", b"answer 8"),
        lambda content: b"\0" * len(content),
    ],
)
def test_a_damaged_cache_is_not_used(tmp_path: Path, damage: Any) -> None:
    store, name, path = long_session(tmp_path)
    kept_of(path).write_bytes(damage(kept_of(path).read_bytes()))
    quick, whole = both(store, name)
    assert state_of(quick) == state_of(whole)
    quick.close()
    whole.close()


def test_a_call_that_was_open_at_a_kill_is_closed_though_it_was_kept(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    run = session.scope("R")
    run.step = 1
    run.append(user("go"), ToolCall(call_id="c1", tool_name="bash", arguments={"command": "make"}))
    session.close()
    again = Session.resume(store, session.session_id)
    assert again.messages()[-1].content[0].call_id == "c1"
    assert not again.totals.agents_with_open_calls()
    again.close()


def test_the_cache_is_private_and_goes_with_its_session(tmp_path: Path) -> None:
    store, name, path = long_session(tmp_path)
    assert kept_of(path).stat().st_mode & 0o777 == 0o600
    assert kept_of(path).parent.stat().st_mode & 0o777 == 0o700
    store.delete(name)
    assert not kept_of(path).parent.exists()


def test_a_session_whose_disk_failed_keeps_nothing(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    session.append(user("one"))
    path = path_of(store, session)
    with path.open("ab") as file:
        file.write(b"another process without a lock\n")
    session.append(user("two"))
    session.close()
    assert not kept_of(path).exists()
    again = Session.resume(store, session.session_id)
    assert texts(list(again.events())) == ["one", "two"]
    again.close()


def test_a_short_session_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_cache, "LEAST_BYTES", 1 << 19)
    _, _, path = long_session(tmp_path)
    assert not path.with_suffix(".d").exists()


def test_a_fork_is_folded_as_its_own_file(tmp_path: Path) -> None:
    store, name, _ = long_session(tmp_path)
    copy = Session.fork(store, name, seq=101)
    copy.append(SessionEvent(action="rename", title="a copy"))
    copy.close()
    quick, whole = both(store, copy.session_id)
    assert state_of(quick) == state_of(whole)
    assert len(quick.messages()) == 100
    quick.close()
    whole.close()
