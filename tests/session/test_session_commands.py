"""`aar sessions` and `aar trace` as a user calls them."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from aar.core.session import Session
from aar.memory.session_store import SessionStore
from aar.providers.scenario import load_script
from tests.cli.support import Ran, aar, script


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """A project and aar's home."""
    project, home = tmp_path / "project", tmp_path / "home"
    (project / ".git").mkdir(parents=True)
    home.mkdir()
    (project / "a.py").write_text("x = 1\n")
    return project, home


def call(place: tuple[Path, Path], *words: str | Path) -> Ran:
    return aar(*words, cwd=place[0], env={"AAR_HOME": str(place[1])})


def worked(place: tuple[Path, Path], *steps: object) -> str:
    """Run a scripted task that changes ``a.py``; return the session's id."""
    edit = {"path": "a.py", "old_text": "x = 1", "new_text": "x = 2"}
    steps = steps or (
        {
            "text": "I look.",
            "reasoning": "hm",
            "tool_calls": [{"name": "read_file", "arguments": {"path": "a.py"}}],
        },
        {"text": "I change.", "tool_calls": [{"name": "edit_file", "arguments": edit}]},
        {"tool_calls": [{"name": "bash", "arguments": {"command": "cat a.py"}}]},
        "All done.",
    )
    model = script(place[1] / "s.json", *steps)
    ran = call(place, "run", "--model", model, "--mode", "edit", "--output", "json", "raise the number")
    return str(ran.json["session_id"])


def test_search_tells_the_session_and_the_place(place: tuple[Path, Path]) -> None:
    one = worked(place)
    (hit,) = call(place, "sessions", "search", "--json", "raise", "number").lines
    assert (hit["id"], hit["kind"]) == (one, "user")
    assert one in call(place, "sessions", "search", "done").out
    assert call(place, "sessions", "search", "nowhere").out == ""
    assert call(place, "sessions", "search", "***").code == 2


def test_export_writes_each_form_for_the_owner_only(place: tuple[Path, Path]) -> None:
    one = worked(place)
    page = place[0] / "session.html"
    assert call(place, "sessions", "export", one[:20], "-o", page).code == 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "All done." in page.read_text()
    assert call(place, "sessions", "export", one).out.startswith("# raise the number")
    data = call(place, "sessions", "export", one, "--format", "json").out
    assert json.loads(data)["session"]["session_id"] == one
    wrong = call(place, "sessions", "export", one, "-o", place[0] / "no" / "x.md")
    assert (wrong.code, "cannot be written" in wrong.err) == (2, True)


def test_a_session_becomes_a_scenario_that_gives_the_same_answer(place: tuple[Path, Path]) -> None:
    one = worked(place)
    file = place[1] / "again.json"
    call(place, "sessions", "export", one, "--scenario", "-o", file)
    assert len(load_script(file)) == 4
    (place[0] / "a.py").write_text("x = 1\n")
    ran = call(place, "run", "--model", f"scripted/{file}", "--mode", "edit", "raise the number")
    assert ran.out.strip() == "All done."
    assert (place[0] / "a.py").read_text() == "x = 2\n"


def test_replay_shows_the_session_in_order(place: tuple[Path, Path]) -> None:
    one = worked(place)
    shown = call(place, "sessions", "replay", one).out
    assert shown.index("raise the number") < shown.index("I look.") < shown.index("All done.")
    began = time.monotonic()
    assert call(place, "sessions", "replay", one, "--speed", "1000").out == shown
    assert time.monotonic() - began < 60
    assert call(place, "sessions", "replay", one, "--keep").code == 2


def test_a_rerun_goes_the_same_way_and_never_touches_the_folder(place: tuple[Path, Path]) -> None:
    one = worked(place)
    if call(place, "sandbox", "status", "--json").json.get("wall") in (None, "none"):
        pytest.skip("no wall here")
    (place[0] / "a.py").write_text("x = 3  # changed since\n")
    before = len(call(place, "sessions", "list", "--json").lines)
    ran = call(place, "sessions", "replay", one, "--rerun", "--json")
    assert ran.json["difference"] is None, ran.out
    assert (ran.json["files"], ran.code) == ("those of the first checkpoint", 0)
    assert (place[0] / "a.py").read_text() == "x = 3  # changed since\n"
    assert len(call(place, "sessions", "list", "--json").lines) == before


def test_a_rerun_tells_the_first_difference(place: tuple[Path, Path]) -> None:
    absolute = str(place[0] / "a.py")
    one = worked(
        place,
        {"tool_calls": [{"name": "bash", "arguments": {"command": "cat a.py"}}]},
        {"tool_calls": [{"name": "write_file", "arguments": {"path": absolute, "content": "y\n"}}]},
        "End.",
    )
    (place[0] / "a.py").write_text("x = 7\n")
    kept = place[1] / "checkpoints"
    if kept.exists():
        kept.rename(place[1] / "gone")
    ran = call(place, "sessions", "replay", one, "--rerun", "--json")
    if "wall" in ran.err:
        pytest.skip("no wall here")
    first = ran.json["difference"]
    assert (first["what"], first["then"], first["now"]) == ("tool_result bash", "x = 1", "x = 7")
    assert ran.code == 1
    assert (place[0] / "a.py").read_text() == "x = 7\n"


def test_prune_deletes_the_old_and_never_an_open_one(place: tuple[Path, Path]) -> None:
    old, running, new = (worked(place, "Done.") for _ in range(3))
    store = SessionStore(place[1] / "sessions")
    for name in (old, running):
        os.utime(store.path(name), (1_000_000_000, 1_000_000_000))
    session = Session.resume(store, running)
    os.utime(store.path(running), (1_000_000_000, 1_000_000_000))
    dry = call(place, "sessions", "prune", "--older-than", "30d", "--dry-run", "--json")
    assert [line["id"] for line in dry.lines] == [old]
    assert f"{running} is open" in dry.err
    assert store.exists(old)
    assert call(place, "sessions", "prune", "--older-than", "30d", "--yes").code == 0
    session.close()
    assert (store.exists(old), store.exists(running), store.exists(new)) == (False, True, True)
    call(place, "sessions", "prune", "--max-size", "1k", "--yes")
    assert store.list() == []


@pytest.mark.parametrize(
    "words", [[], ["--older-than", "soon"], ["--max-size", "much"], ["--older-than", "-1d"]]
)
def test_prune_says_what_it_needs(place: tuple[Path, Path], words: list[str]) -> None:
    ran = call(place, "sessions", "prune", *words)
    assert ran.code == 2
    assert "30d" in ran.err or "1G" in ran.err


def test_trace_shows_each_part_below_its_whole(place: tuple[Path, Path]) -> None:
    one = worked(place)
    root = call(place, "trace", one, "--json").json
    (run,) = root["children"]
    assert [child["kind"] for child in run["children"]] == ["step"] * 4
    assert [[part["kind"] for part in step["children"]] for step in run["children"]] == [
        ["model", "tool"],
        ["model", "tool"],
        ["model", "tool"],
        ["model"],
    ]
    assert root["usage"]["total"] == sum(step["usage"]["total"] for step in run["children"]) > 0
    shown = call(place, "trace").out
    assert "tool edit_file" in shown
    assert call(place, "trace", "--endpoint", "http://x").code == 2


def test_a_session_that_is_open_elsewhere_is_refused_or_copied_as_the_user_chose(
    place: tuple[Path, Path],
) -> None:
    one = worked(place, "Done.")
    model = script(place[1] / "more.json", "More.")
    session = Session.resume(SessionStore(place[1] / "sessions"), one)
    before = session.last_seq
    refused = call(place, "run", "--model", model, "--session", one, "and more")
    assert refused.code == 3
    assert f"aar run --fork {one}" in refused.err
    copied = call(
        place, "run", "--model", model, "--session", one, "--if-open", "fork", "--output", "json", "on"
    )
    assert (copied.json["text"], copied.json["session_id"] != one) == ("More.", True)
    assert session.last_seq == before
    session.close()


def test_a_run_goes_on_from_a_copy_of_the_first_events(place: tuple[Path, Path]) -> None:
    one = worked(place)
    model = script(place[1] / "more.json", "Another way.")
    ran = call(place, "run", "--model", model, "--fork", one, "--at", "5", "--output", "json", "again")
    events = call(place, "sessions", "show", ran.json["session_id"], "--json").lines
    origin = next(event["forked_from"] for event in events if event["type"] == "session" and event["seq"] > 1)
    assert origin == {"session_id": one, "seq": 5}
    assert call(place, "run", "--at", "5", "again").code == 2
