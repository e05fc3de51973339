"""Runs go on with stored sessions, and keep nothing when told so."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.cli.support import aar, call, events, of_type, script, start, stored


def test_continue_session_and_fork_find_the_right_session(project: Path, hello: str) -> None:
    run = ["run", "--output", "json", "--model", hello]
    first = aar(*run, "--title", "First", "one", cwd=project).json["session_id"]
    second = aar(*run, "two", cwd=project).json["session_id"]
    assert aar(*run, "--continue", "three", cwd=project).json["session_id"] == second
    shared = next(n for n in range(26) if first[n] != second[n])
    shortened = first[: shared + 1].lower()
    assert (
        aar(*run, "--session", shortened, "--title", "Renamed", "four", cwd=project).json["session_id"]
        == first
    )
    copy = aar(*run, "--fork", second, "five", cwd=project).json["session_id"]
    assert copy not in {first, second}
    prompts = {
        path.stem: [event["content"][0]["text"] for event in of_type(events(path), "user_message")]
        for path in stored()
    }
    assert prompts == {first: ["one", "four"], second: ["two", "three"], copy: ["two", "three", "five"]}
    listed = {line["id"]: line for line in aar("sessions", "list", "--json", cwd=project).lines}
    assert listed[first]["title"] == "Renamed"
    assert set(listed[first]) == {"id", "title", "cwd", "model", "updated", "events", "cost_usd"}


def test_without_a_session_to_go_on_with_the_run_says_so_and_sends_nothing(project: Path, hello: str) -> None:
    for args in (["--continue"], ["--session", "01AB"], ["--fork", "../x"]):
        ran = aar("run", "--model", hello, *args, "hi", cwd=project)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.count("\n") == 1
    assert stored() == []


def test_a_session_that_another_process_has_open_is_left_alone(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", {"text": "late", "first_delay_ms": 60_000})
    holder = start(
        "run", "--model", model, "--output", "stream-json", "hi", cwd=project, stderr=subprocess.DEVNULL
    )
    try:
        assert holder.stdout is not None
        session = json.loads(holder.stdout.readline())["session_id"]
        ran = aar("run", "--output", "json", "--model", model, "--session", session, "more", cwd=project)
        forked = aar("sessions", "fork", session, cwd=project)
    finally:
        holder.kill()
        holder.communicate()
    assert (ran.code, ran.json["error"]["kind"]) == (3, "storage")
    assert str(holder.pid) in ran.json["error"]["message"]
    assert "--fork" in ran.json["error"]["message"]
    assert forked.code == 0


def test_no_session_leaves_nothing_of_the_run_on_disk(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", call("bash", command="seq 1 40000"), "Done.")
    ran = aar("run", "--no-session", "--model", model, "--output", "stream-json", "hi", cwd=project)
    assert ran.code == 0
    assert of_type(ran.lines, "tool_result")[0]["truncated"]
    home = Path(os.environ["AAR_HOME"])
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_sessions_are_shown_copied_renamed_and_deleted(project: Path, hello: str) -> None:
    first = aar("run", "--output", "json", "--model", hello, "one", cwd=project).json["session_id"]
    shown = aar("sessions", "show", first, "--json", cwd=project)
    assert [line["seq"] for line in shown.lines] == list(range(1, len(shown.lines) + 1))
    assert len(aar("sessions", "show", first, "--json", "--tail", "2", cwd=project).lines) == 2
    copy = aar("sessions", "fork", first, "--at", "2", "--title", "Copy", cwd=project).out.strip()
    found = events(next(path for path in stored() if path.stem == copy))
    assert [event["action"] for event in of_type(found, "session")][:2] == ["start", "fork"]
    assert found[2]["forked_from"] == {"session_id": first, "seq": 2}
    assert "TITLE is empty" in aar("sessions", "rename", first, " ", cwd=project).err
    assert aar("sessions", "rename", first, "Named", cwd=project).code == 0
    titles = {line["id"]: line["title"] for line in aar("sessions", "list", "--json", cwd=project).lines}
    assert titles == {first: "Named", copy: "Copy"}
    assert aar("sessions", "delete", first, cwd=project).code != 0
    assert aar("sessions", "delete", first, "--yes", cwd=project).code == 0
    assert [path.stem for path in stored()] == [copy]


def test_an_empty_id_is_never_taken_for_the_only_session(project: Path, hello: str) -> None:
    aar("run", "--model", hello, "one", cwd=project)
    for args in (["run", "--model", hello, "--session", "", "more"], ["sessions", "delete", "--yes", " "]):
        ran = aar(*args, cwd=project)
        assert (ran.code, ran.out) == (3, "")
        assert "empty" in ran.err
    assert len(of_type(events(stored()[0]), "user_message")) == 1
