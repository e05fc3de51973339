"""``aar init``, ``aar config schema`` and ``aar completion``."""

from __future__ import annotations

import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import COMMAND, aar, environment, finish, start, stored


def test_init_writes_a_config_that_is_valid_and_private_and_never_changes_one(project: Path) -> None:
    first = aar("init", cwd=project)
    file = Path(os.environ["AAR_HOME"]) / "config" / "config.toml"
    assert (first.code, str(file) in first.out) == (0, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert aar("config", "validate", cwd=project).code == 0
    assert not (project / "AGENTS.md").exists()
    assert "aar init --agents-md" in first.out
    file.write_text("[limits]\nsteps = 3\n")
    assert "is there already" in aar("init", cwd=project).out
    assert file.read_text() == "[limits]\nsteps = 3\n"


def test_init_drafts_rules_when_asked_to_and_leaves_those_that_exist(project: Path) -> None:
    (project / "Makefile").write_text("check:\n\ttrue\n")
    told = aar("init", "--agents-md", "--cwd", project, cwd=project.parent)
    assert told.code == 0
    assert "- `make check`" in (project / "AGENTS.md").read_text()
    (project / "AGENTS.md").write_text("mine")
    assert aar("init", "--agents-md", cwd=project).code == 0
    assert (project / "AGENTS.md").read_text() == "mine"
    assert "AGENTS.md" not in aar("init", "--no-agents-md", "--cwd", project.parent, cwd=project).out
    assert aar("init", "--cwd", "nowhere", cwd=project).code == 3


def test_on_a_terminal_init_shows_the_draft_and_asks(project: Path) -> None:
    for answer, written in ((b"n\n", False), (b"y\n", True)):
        master, slave = pty.openpty()
        ran = subprocess.Popen(
            [*COMMAND, "init"], cwd=project, env=environment(), stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        os.write(master, answer)
        shown = b""
        try:
            while piece := os.read(master, 4096):
                shown += piece
        except OSError:  # the other end is gone
            pass
        assert ran.wait(60) == 0
        os.close(master)
        assert b"# project" in shown
        assert (project / "AGENTS.md").exists() is written


def test_the_schema_of_the_config_is_one_json_document(project: Path) -> None:
    told = json.loads(aar("config", "schema", cwd=project).out)
    assert told["$schema"].startswith("https://json-schema.org/")
    assert "steps" in told["$defs"]["LimitsConfig"]["properties"]


def completed(project: Path, words: str, shell: str = "bash") -> list[str]:
    """Return what the shell gets for ``words``; the last one is being typed, and may be empty."""
    count = len(words.split(" ")) - 1
    env = {"_AAR_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    ran = finish(start(cwd=project, env=env))
    assert (ran.code, ran.err) == (0, "")
    return [line.partition(",")[2] for line in ran.out.splitlines() if line]


def test_commands_and_options_are_completed(project: Path) -> None:
    assert {"run", "sessions", "doctor", "init"} <= set(completed(project, "aar "))
    assert completed(project, "aar sess") == ["sessions"]
    assert "--model" in completed(project, "aar run --mo")
    assert "stream-json" in completed(project, "aar run --output ")


def test_sessions_are_completed_by_the_names_of_their_files(project: Path, hello: str) -> None:
    aar("run", "--model", hello, "hi", cwd=project)
    name = stored()[0].stem
    for words in (
        "aar run --session ",
        f"aar run --fork {name[:4]}",
        f"aar sessions show {name[:6].lower()}",
    ):
        assert completed(project, words) == [name], words
    assert completed(project, "aar run --session *") == [name]
    assert completed(project.parent, "aar run --session ") == []


def test_models_are_completed_with_those_of_the_config(project: Path) -> None:
    config = Path(os.environ["AAR_HOME"]) / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        '[model]\nname = "openai-compatible/mine"\nfallback = ["ollama/other"]\n'
    )
    told = completed(project, "aar run --model o")
    assert {"openai-compatible/mine", "ollama/other", "openai/"} <= set(told)
    (config / "config.toml").write_text("model = [")
    assert "ollama/" in completed(project, "aar run --model o")


def test_keys_of_the_config_are_completed(project: Path) -> None:
    assert completed(project, "aar config get lim") == ["limits."]
    assert completed(project, "aar config set limits.st") == ["limits.steps"]
    assert completed(project, "aar run --set limits.st") == ["limits.steps="]


def test_completing_a_session_imports_nothing_heavy(project: Path) -> None:
    code = (
        "import os, sys; os.environ.update(_AAR_COMPLETE='bash_complete', COMP_WORDS='aar sessions show ', COMP_CWORD='3')\n"
        "from aar.transports.cli.main import run_cli\n"
        "print(run_cli([]), [n for n in ('pydantic', 'aar.runtime', 'httpx2') if n in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "0 []"


def test_completing_imports_neither_commands_nor_anything_heavy(project: Path) -> None:
    code = (
        "import os, sys; os.environ.update(_AAR_COMPLETE='bash_complete', COMP_WORDS='aar ', COMP_CWORD='1')\n"
        "from aar.transports.cli.main import run_cli\n"
        "run_cli([])\n"
        "print([n for n in ('pydantic', 'aar.transports.cli.run', 'httpx2') if n in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr.strip() == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_understands(project: Path, shell: str) -> None:
    script = aar("completion", shell, cwd=project)
    assert script.code == 0
    assert "_AAR_COMPLETE" in script.out
    if shutil.which(shell) is not None:
        checked = subprocess.run([shell, "-n"], input=script.out, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_real_bash_completes(project: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "aar").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aar "$@"\n')
    (tmp_path / "bin" / "aar").chmod(0o755)
    lines = 'eval "$(aar completion bash)"; COMP_WORDS=(aar sessions li); COMP_CWORD=2; _aar_completion aar li sessions; echo "${COMPREPLY[@]}"'
    env = {**environment(), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", lines], cwd=project, env=env, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["list"]
