"""Flags that change where and how a run works."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.support import aar, call, events, of_type, script, start, stored


def test_a_failing_check_goes_back_to_the_model_until_it_passes(project: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "s.json", "All is well.", call("write_file", path="fixed", content="x\n"), "Now it is."
    )
    ran = aar("run", "--output", "json", "--model", model, "--verify", "test -e fixed", "fix", cwd=project)
    assert (ran.code, ran.json["stop_reason"], ran.json["steps"]) == (0, "verified", 3)
    assert [event["source"] for event in of_type(events(stored()[0]), "context")] == ["verify"]


def test_the_last_message_is_written_whole_or_the_run_says_why_not(
    project: Path, tmp_path: Path, hello: str
) -> None:
    kept = tmp_path / "answer.txt"
    kept.write_text("an older and much longer answer")
    assert aar("run", "--model", hello, "--output-last-message", kept, "hi", cwd=project).code == 0
    assert kept.read_text() == "Hello there."
    assert sorted(path.name for path in tmp_path.iterdir() if "answer" in path.name) == ["answer.txt"]
    with (tmp_path / "all").open("w") as both:
        last = ["--output-last-message", "/dev/stdout"]
        assert start("run", "-q", "--model", hello, *last, "hi", cwd=project, stdout=both).wait(60) == 0
    assert (tmp_path / "all").read_text().endswith("Hello there.\n")
    for wrong in (tmp_path / "none" / "x", tmp_path):
        ran = aar(
            "run", "--output", "json", "--model", hello, "--output-last-message", wrong, "hi", cwd=project
        )
        assert (ran.code, ran.json["steps"]) == (3, 0)


def test_a_run_works_in_the_folder_that_cwd_names(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", call("read_file", path="notes.txt"), "Read.")
    ran = aar("run", "--output", "stream-json", "--model", model, "--cwd", "project", "hi", cwd=tmp_path)
    assert ran.lines[0]["cwd"] == str(project.resolve())
    assert "remember the milk" in of_type(ran.lines, "tool_result")[0]["output"]
    missing = aar("run", "--model", model, "--cwd", "nowhere", "hi", cwd=tmp_path)
    assert (missing.code, missing.err.count("\n")) == (3, 1)


def test_another_folder_may_be_changed_only_when_it_was_added(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    steps = [
        call("write_file", path=str(other / "a.txt"), content="x\n"),
        call("bash", command=f"echo y > {other}/b.txt"),
        "Done.",
    ]
    model = script(tmp_path / "s.json", *steps)
    without = aar("run", "--output", "json", "--model", model, "hi", cwd=project)
    assert list(other.iterdir()) == []
    assert without.code in (0, 6)
    assert aar("run", "--model", model, "--add-dir", other, "hi", cwd=project).code == 0
    assert sorted(path.name for path in other.iterdir()) == ["a.txt", "b.txt"]


def test_commands_may_not_read_the_folders_of_aar(project: Path, tmp_path: Path) -> None:
    home = Path(os.environ["AAR_HOME"])
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text(
        '[providers.x]\nbase_url = "http://127.0.0.1:1/secret-address"\n'
    )
    model = script(tmp_path / "s.json", call("bash", command=f"cat {home}/config/config.toml; true"), "Done.")
    ran = aar("run", "--output", "stream-json", "--model", model, "hi", cwd=project)
    assert "secret-address" not in ran.out
