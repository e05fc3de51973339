"""Whatever is broken around aar, it says so in one sentence."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import aar, call, events, finish, script, start, stored

ALL = (
    ["config", "show"],
    ["sessions", "list"],
    ["tools"],
    ["policy", "check", "ls"],
    ["logs"],
    ["models", "list"],
    ["sandbox", "status"],
    ["doctor"],
)


def home() -> Path:
    folder = Path(os.environ["AAR_HOME"])
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize(
    "text",
    ["[model\nname=", '[model]\nnmae = "x"\n', "[limits]\nsteps = 'many'\n", "\x00\x01", "\udcff\udcfe"],
    ids=["syntax", "typo", "type", "control", "not-utf-8"],
)
def test_a_corrupt_config_names_file_and_place(project: Path, hello: str, text: str) -> None:
    config = home() / "config" / "config.toml"
    config.parent.mkdir()
    config.write_text(text, encoding="utf-8", errors="surrogateescape")
    ran = aar("run", "--output", "json", "--model", hello, "hi", cwd=project)
    assert ran.code == 3
    assert str(config) in ran.json["error"]["message"]
    assert ran.err.count("\n") == 1
    doctor = aar("doctor", "--json", cwd=project)
    assert doctor.code == 3
    assert [check["status"] for check in doctor.json["checks"] if check["name"] == "config"] == ["fail"]


def test_a_home_that_is_no_folder_is_one_sentence_in_every_command(
    project: Path, tmp_path: Path, hello: str
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below", Path("/proc/nowhere")):
        env = {"AAR_HOME": str(place)}
        ran = aar("run", "--model", hello, "hi", cwd=project, env=env)
        assert ran.code == 3, ran
        assert ran.err.count("\n") == 1
        assert str(place) in ran.err
    for command in ALL:
        ran = aar(*command, cwd=project, env={"AAR_HOME": str(file)})
        assert ran.code in (0, 3), ran
        assert ran.err.count("\n") <= 1


def test_corrupt_session_files_are_survived_by_runs_and_lists(project: Path, hello: str) -> None:
    run = ["run", "--output", "json", "--model", hello]
    session = aar(*run, "one", cwd=project).json["session_id"]
    file = stored()[0]
    good = file.read_bytes()
    for damage in (
        good + b'{"type":"user_message","seq":',
        good.replace(b'"type":"user_message"', b'"type":#####'),
        b"\x00" * 200 + b"\n" + good,
        b"",
    ):
        file.write_bytes(damage)
        assert aar("sessions", "list", cwd=project).code == 0
        assert aar("sessions", "show", session, cwd=project).code == 0
        assert aar("doctor", cwd=project).code in (0, 3)
        ran = aar(*run, "--continue", "two", cwd=project)
        assert (ran.code, ran.json["text"]) == (0, "Hello there."), damage[:80]
    file.write_text(good.decode().replace('"schema_version":1', '"schema_version":99'))
    newer = aar(*run, "--session", session, "three", cwd=project)
    assert newer.code in (3, 7)
    assert "newer" in newer.json["error"]["message"]


def test_a_full_disk_does_not_stop_the_run(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", call("read_file", path="notes.txt"), "Still here.")

    def few_bytes() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    args = ["run", "--model", model, "hi"]
    # Python itself would keep half a compiled module, and fall over it the next time; so would coverage.
    env = {"PYTHONDONTWRITEBYTECODE": "1", "COVERAGE_PROCESS_CONFIG": None}
    # Room for a few lines of the session, then none: a disk that fills up in the middle.
    limit = 700
    ran = finish(start(*args, cwd=project, preexec_fn=few_bytes, env=env))
    assert (ran.code, ran.out) == (0, "Still here.\n")
    assert "cannot be saved" in ran.err
    limit = 0
    ran = finish(start(*args, cwd=project, preexec_fn=few_bytes, env=env))
    assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)
    assert "TMPDIR" in ran.err


def test_a_folder_that_was_removed_is_one_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    command = "mkdir gone && cd gone && rmdir ../gone && exec aar_python -P -m aar"
    for args in ("run hi", "config show", "doctor"):
        line = command.replace("aar_python", repr(os.sys.executable)) + f" {args}"  # type: ignore[attr-defined]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        ended = subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert "Traceback" not in ended.stderr
        assert ended.returncode == 3
        assert "removed" in ended.stderr + ended.stdout
    assert not gone.exists()


def test_a_read_only_project_can_be_worked_in(project: Path, hello: str) -> None:
    project.chmod(0o500)
    try:
        assert aar("run", "--model", hello, "hi", cwd=project).code == 0
    finally:
        project.chmod(0o700)
    assert len(events(stored()[0])) > 3
