"""The smaller commands: help, doctor, models, and what they answer."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

from aar.transports.cli.main import cli
from tests.cli.support import aar, finish, start
from tests.support.model_server import Reply, model_server


def commands(group: click.Group, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the words of all commands."""
    found: list[tuple[str, ...]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((*prefix, name))
        if isinstance(command, click.Group):
            found += commands(command, (*prefix, name))
    return found


def test_every_command_has_help_that_names_it_and_says_what_it_does(project: Path) -> None:
    assert len(commands(cli)) > 20
    for words in [(), *commands(cli)]:
        ran = aar(*words, "--help", cwd=project)
        assert (ran.code, ran.err) == (0, ""), words
        assert ran.out.startswith(f"Usage: {' '.join(('aar', *words))}")
        assert len(ran.out.splitlines()[2].strip()) > 15
        assert max(map(len, ran.out.splitlines())) <= 100


def test_aar_alone_shows_what_there_is(project: Path) -> None:
    alone, asked = aar(cwd=project), aar("-h", cwd=project)
    assert (alone.code, alone.out) == (0, asked.out)
    assert 'aar run "' in alone.out


def test_a_group_without_a_command_shows_its_help_and_fails(project: Path) -> None:
    ran = aar("sessions", cwd=project)
    assert (ran.code, ran.out) == (2, "")
    assert "fork" in ran.err


def test_the_version_is_one_line_wherever_it_stands(project: Path) -> None:
    from aar import __version__

    for args in (["--version"], ["--version", "run"]):
        ran = aar(*args, cwd=project)
        assert (ran.code, ran.out) == (0, f"aar {__version__}\n")


def test_doctor_tells_what_was_found_and_fails_only_when_aar_is_not_usable(project: Path) -> None:
    env = {"OPENAI_API_KEY": "sk-value-of-the-key-000000000000"}
    ran = aar("doctor", "--json", cwd=project, env=env)
    told = ran.json
    assert (ran.code, told["usable"]) == (0, True)
    checks = {check["name"]: check for check in told["checks"]}
    assert {
        "aar",
        "python",
        "data folder",
        "config folder",
        "config",
        "model",
        "wall",
        "git",
        "rg",
        "terminal",
        "sessions",
    } <= set(checks)
    assert "OPENAI_API_KEY is set" in checks["model"]["detail"]
    assert "sk-value" not in ran.out
    lines = aar("doctor", cwd=project, env=env).out.splitlines()
    assert len(lines) == len(told["checks"]) + 1
    assert all(line.split()[0] in {"ok", "warn", "fail"} for line in lines[:-1])
    broken = aar("doctor", "--model", "nobody/x", cwd=project)
    assert broken.code == 3
    assert any(line.startswith("fail  model") for line in broken.out.splitlines())


def test_doctor_leaves_no_trace(project: Path) -> None:
    aar("doctor", "--model", "ollama/x", cwd=project)
    assert not Path(os.environ["AAR_HOME"]).exists()


def test_models_lists_defaults_and_what_the_server_tells(project: Path) -> None:
    with model_server([Reply(text="x")], models=["big-coder", "tiny-1b"]) as server:
        args = ["--model", "openai-compatible/big-coder", "--base-url", server.base_url]
        lines = {line["name"]: line for line in aar("models", "list", "--json", *args, cwd=project).lines}
    assert lines["openai-compatible/tiny-1b"]["source"] == "server"
    assert lines["openai-compatible/tiny-1b"]["dialect"] == "files"
    assert lines["openai-compatible/big-coder"]["chosen"]
    assert lines["openai/gpt-5"]["usable"] is False
    assert "local/qwen2.5-coder-1.5b" in lines
    unreachable = aar("models", "list", "--base-url", "http://127.0.0.1:9/v1", cwd=project)
    assert unreachable.code == 0
    assert "does not tell its models" in unreachable.err


def test_models_show_tells_what_is_known_and_refuses_names_without_a_provider(project: Path) -> None:
    told = aar("models", "show", "openai/gpt-5", "--json", cwd=project).json
    assert (told["dialect"], told["context_window"], told["usable"]) == ("native", 400_000, False)
    assert aar("models", "show", "what", cwd=project).code == 3
    assert aar("models", "pull", "openai/gpt-5", cwd=project).code == 3


def test_a_download_that_is_not_the_published_file_is_refused_and_removed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with model_server([Reply()]) as server:
        ran = aar("models", "pull", "--url", f"{server.base_url}/weights.gguf", cwd=project)
    assert (ran.code, ran.out) == (3, "")
    assert "downloaded" in ran.err or "SHA-256" in ran.err
    left = list(Path(os.environ["AAR_HOME"]).rglob("*.gguf"))
    assert left == []


def test_without_anything_set_up_one_sentence_tells_so(project: Path) -> None:
    checked = aar("config", "validate", cwd=project)
    assert (checked.code, "the built-in settings hold" in checked.out) == (0, True)
    assert "`aar mcp add` adds one" in aar("mcp", "list", cwd=project).out
    assert "There are no skills here yet" in aar("skills", "list", cwd=project).out


def test_settings_can_be_changed_and_read_back(project: Path) -> None:
    assert aar("config", "set", "limits.steps", "7", cwd=project).code == 0
    assert aar("config", "get", "limits.steps", cwd=project).out == "7\n"
    assert Path(aar("config", "path", cwd=project).out.strip()).read_text().strip().endswith("steps = 7")
    shown = aar("config", "show", "--origin", cwd=project).out
    assert "limits.steps = 7    # " in shown
    assert aar("config", "set", "limits.stepz", "7", cwd=project).code == 3
    assert aar("config", "validate", cwd=project).code == 0


def test_policy_check_answers_in_json_without_model_and_trust(project: Path) -> None:
    ran = aar("policy", "check", "--mode", "auto", "git status && rm -rf /", cwd=project)
    assert ran.code == 0
    assert set(ran.json) == {"decision", "rule", "reasons", "commands"}
    assert ran.json["decision"] != "allow"
    assert [part["argv"] for part in ran.json["commands"]] == [["git", "status"], ["rm", "-rf", "/"]]


def test_a_command_behind_the_wall_gives_its_own_exit_code(project: Path, tmp_path: Path) -> None:
    ran = finish(start("sandbox", "exec", "--", "sh", "-c", "echo out; exit 7", cwd=project))
    assert (ran.code, ran.out) == (7, "out\n")
    assert finish(start("sandbox", "exec", "--", "no-such-program", cwd=project)).code == 3
    status = aar("sandbox", "status", "--json", cwd=project).json
    assert set(status) == {"wall", "enforced", "reasons", "covers", "gaps", "allow_domains"}


def test_tools_and_prompt_are_shown_as_the_model_gets_them(project: Path, hello: str) -> None:
    tools = [line["name"] for line in aar("tools", "--json", cwd=project).lines]
    assert {"read_file", "write_file", "edit_file", "bash", "grep"} <= set(tools)
    layers = aar("prompt", "show", "--layers", "--model", hello, cwd=project).out
    whole = aar("prompt", "show", "--model", hello, cwd=project).out
    assert aar("prompt", "show", "--model", hello, cwd=project).out == whole
    names = re.findall(r"^--- (\S+) · ", layers, re.MULTILINE)
    assert names[0] == "identity"
    assert names[-1] == "tools"
    assert re.search(r"sha256 [0-9a-f]{64}$", layers.strip())
    assert all(line in layers for line in whole.splitlines())
