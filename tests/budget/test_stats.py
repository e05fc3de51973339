"""``aar stats``: numbers over all sessions, each line of a file read once."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.memory.usage_index import UsageIndex
from aar.protocol.events import ProviderMeta, ToolResult
from aar.protocol.usage import Usage
from tests.cli.support import aar


def meta(model: str = "m", cost: float | None = 0.5, **usage: int) -> ProviderMeta:
    used = Usage(**{"input": 100, "output": 10, **usage})
    return ProviderMeta(
        provider="p", model=model, usage=used, cost_usd=cost, duration_ms=2000, cache_saved_usd=0.1
    )


def failed(category: str) -> ToolResult:
    return ToolResult(
        call_id="c", tool_name="bash", output="Error", is_error=True, category=category, duration_ms=30
    )


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions")


def index(tmp_path: Path) -> UsageIndex:
    return UsageIndex(tmp_path / "sessions", tmp_path / "cache" / "usage.json")


def session(store: SessionStore, folder: Path) -> Session:
    folder.mkdir(exist_ok=True)
    return Session.create(store, cwd=folder, model="p/m")


def test_numbers_by_model_project_and_day(tmp_path: Path, store: SessionStore) -> None:
    one, two = session(store, tmp_path / "one"), session(store, tmp_path / "two")
    one.append(meta(), meta("n", None), failed("timeout"))
    two.append(meta(cache_read=50), ToolResult(call_id="d", tool_name="grep", output="ok", duration_ms=10))
    for opened in (one, two):
        opened.close()
    by_model = index(tmp_path).usage("model")
    assert [(row.key, row.requests, row.cost_usd, row.unpriced) for row in by_model.rows] == [
        ("p/m", 2, 1.0, 0),
        ("p/n", 1, 0.0, 1),
    ]
    by_project = {row.key: row for row in index(tmp_path).usage("project").rows}
    assert by_project[str(tmp_path / "one")].tool_failures == {"timeout": 1}
    assert by_project[str(tmp_path / "two")].cache_read == 50
    total = index(tmp_path).usage("day").total
    assert (total.requests, total.tool_calls, total.tool_ms, total.model_ms) == (3, 2, 40, 6000)
    assert total.cache_saved_usd == pytest.approx(0.3)
    assert [row.key for row in index(tmp_path).usage("day").rows] == [date.today().isoformat()]
    assert index(tmp_path).usage("day", date.today() + timedelta(days=1)).rows == ()


def test_only_what_is_new_is_read(tmp_path: Path, store: SessionStore) -> None:
    opened = session(store, tmp_path / "one")
    for _ in range(50):
        opened.append(meta())
    first = index(tmp_path)
    assert first.usage("day").total.requests == 50
    assert first.lines_read == 51
    again = index(tmp_path)
    assert again.usage("day").total.requests == 50
    assert again.lines_read == 0
    opened.append(meta())
    more = index(tmp_path)
    assert (more.usage("day").total.requests, more.lines_read) == (51, 1)
    opened.close()


def test_a_broken_cache_a_torn_line_and_a_deleted_session_are_survived(
    tmp_path: Path, store: SessionStore
) -> None:
    opened = session(store, tmp_path / "one")
    opened.append(meta(), meta())
    opened.close()
    assert index(tmp_path).usage("day").total.requests == 2
    (tmp_path / "cache" / "usage.json").write_text('{"version": 1, "files": ')
    assert index(tmp_path).usage("day").total.requests == 2
    path = store.path(opened.session_id)
    with path.open("ab") as file:
        file.write(b'garbage\n{"type":"provider_meta","id":"","seq":9,"ts":"2026')
    assert index(tmp_path).usage("day").total.requests == 2
    path.unlink()
    assert index(tmp_path).usage("day").total.requests == 0


def test_what_a_fork_copied_counts_once(tmp_path: Path, store: SessionStore) -> None:
    opened = session(store, tmp_path / "one")
    opened.append(meta(), meta())
    opened.close()
    fork = Session.fork(store, opened.session_id)
    fork.append(meta())
    fork.close()
    assert index(tmp_path).usage("day").total.requests == 3


def test_the_command_tells_it_to_people_and_scripts(project: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "s.json"
    steps = [{"tool_calls": [{"name": "read_file", "arguments": {"path": "nothing.txt"}}]}, {"text": "Done."}]
    scenario.write_text(json.dumps({"steps": steps, "price": {"input": 1000, "output": 1000}}))
    assert aar("run", "-q", "--model", f"scripted/{scenario}", "hi", cwd=project).code == 0
    report = aar("stats", "--json", "--by", "model", cwd=project).json
    assert report["total"]["requests"] == 2
    assert report["total"]["cost_usd"] == pytest.approx(report["today_usd"])
    assert report["today_usd"] > 0
    assert report["total"]["tool_failures"] == {"not_found": 1}
    assert report["rows"][0]["key"].startswith("scripted/")
    table = aar("stats", cwd=project)
    assert date.today().isoformat() in table.out
    assert "not_found 1" in table.out
    assert "Spent today" in table.out


def test_a_budget_stops_runs_of_other_processes(project: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "s.json"
    scenario.write_text(
        json.dumps({"steps": [{"text": "Done."}], "price": {"input": 100000, "output": 100000}})
    )
    args = ("run", "--model", f"scripted/{scenario}", "--set", "budget.day_usd=0.01", "hi")
    assert aar(*args, cwd=project).code in (0, 5)
    second = aar(*args, cwd=project)
    assert second.code == 5
    assert "budget.day_usd=" in second.err


def test_without_sessions_it_says_so(project: Path) -> None:
    assert "Nothing was asked in the last 3 days." in aar("stats", "--days", "3", cwd=project).out
