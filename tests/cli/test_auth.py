"""`aar auth`, and where a key goes: to the host it was given for, and nowhere else."""

from __future__ import annotations

import json
import os
import pty
import stat
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.support import COMMAND, aar, environment
from tests.support.model_server import Reply, model_server
from tests.support.waiting import wait_until

KEY = "plain-K3y-without-any-known-form-77"
ODD = {
    "env": "odd-env-key-4411-zzz",
    "command": "odd-command-key-9911-yyy",
    "file": "odd-file-key-2211-xxx",
    "header": "odd-header-key-3311-www",
}


def keys_file() -> Path:
    return Path(os.environ["AAR_HOME"]) / "config" / "keys.json"


def test_a_key_is_kept_for_its_owner_alone_listed_without_being_shown_and_forgotten(project: Path) -> None:
    kept = aar("auth", "set", "openai", "--stdin", cwd=project, stdin=f"{KEY}\n")
    assert (kept.code, KEY in kept.out + kept.err) == (0, False)
    assert stat.S_IMODE(keys_file().stat().st_mode) == 0o600
    other = aar(
        "auth", "set", "vllm", "--host", "gpu.example.org:8000", "--stdin", cwd=project, stdin=KEY + "2"
    )
    assert other.code == 0
    listed = aar("auth", "list", "--json", cwd=project)
    assert listed.lines == [
        {"provider": "openai", "host": "api.openai.com", "where": "file"},
        {"provider": "vllm", "host": "gpu.example.org", "where": "file"},
    ]
    assert KEY not in aar("auth", "list", cwd=project).out
    assert aar("auth", "remove", "openai", cwd=project).code == 0
    assert json.loads(keys_file().read_text())["keys"][0]["provider"] == "vllm"
    again = aar("auth", "remove", "openai", cwd=project)
    assert (again.code, "No key of openai" in again.err) == (3, True)


@pytest.mark.parametrize(
    ("args", "stdin", "told"),
    [
        (["openai", "--stdin"], "", "empty"),
        (["openai", "--stdin"], "two words", "no key"),
        (["openai", "--stdin"], "schlüssel", "no key"),
        (["vllm", "--stdin"], KEY, "--host"),
        (["openai", "--host", "a b", "--stdin"], KEY, "name of a host"),
        (["local", "--stdin"], KEY, "needs no key"),
        (["openai"], KEY, "--stdin"),
    ],
)
def test_what_cannot_be_a_key_or_a_host_is_refused_without_showing_it(
    project: Path, args: list[str], stdin: str, told: str
) -> None:
    ran = aar("auth", "set", *args, cwd=project, stdin=stdin)
    assert ran.code == 2
    assert told in ran.err
    assert not stdin or stdin not in ran.out + ran.err
    assert not keys_file().exists()


def test_a_terminal_is_asked_without_echo(project: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(project)
        os.execve(sys.executable, [*COMMAND, "auth", "set", "openai"], environment())
    shown = b""
    while b"not shown" not in shown:
        shown += os.read(terminal, 1000)
    wait_until(lambda: not termios.tcgetattr(terminal)[3] & termios.ECHO)
    os.write(terminal, KEY.encode() + b"\n")
    while True:
        try:
            piece = os.read(terminal, 1000)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    assert os.waitpid(pid, 0)[1] == 0
    assert KEY.encode() not in shown
    assert json.loads(keys_file().read_text())["keys"][0]["key"] == KEY


def test_a_damaged_file_of_keys_is_told_without_its_content(project: Path) -> None:
    keys_file().parent.mkdir(parents=True, exist_ok=True)
    keys_file().write_text('{"keys": [{"provider": "' + KEY)
    ran = aar("auth", "list", cwd=project)
    assert (ran.code, "damaged" in ran.err, KEY in ran.err) == (3, True, False)


def test_a_kept_key_goes_to_its_host_and_to_no_other_name_of_the_same_machine(project: Path) -> None:
    with model_server([Reply(text="Hello.")]) as server:
        aar("auth", "set", "openai-compatible", "--host", "localhost", "--stdin", cwd=project, stdin=KEY)
        for host in ("localhost", "127.0.0.1"):
            url = f"http://{host}:{server.port}/v1"
            ran = aar("run", "-q", "--model", "openai-compatible/m", "--base-url", url, "hi", cwd=project)
            assert ran.code == 0, ran.err
        sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == [f"Bearer {KEY}", None]


def test_no_key_of_any_place_appears_in_anything_that_failing_runs_write(project: Path) -> None:
    config = Path(os.environ["AAR_HOME"]) / "config" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        '[log]\nlevel = "debug"\ntrace = ["llm"]\n'
        f'[providers.vllm]\napi_key_command = "echo {ODD["command"][:8]}; exit 3"\n'
        '[providers.groq]\napi_key_command = "cat key.txt"\nbase_url = "http://127.0.0.1:9/v1"\n'
        f'[providers.mistral.headers]\nX-Api-Key = "{ODD["header"]}"\n'
    )
    (config.parent / "key.txt").write_text(ODD["command"])
    env = {"MISTRAL_API_KEY": ODD["env"]}
    aar("auth", "set", "openai-compatible", "--host", "127.0.0.1", "--stdin", cwd=project, stdin=ODD["file"])
    words = " and ".join(ODD.values())
    replies = [Reply(status=401, error=f"Wrong key {words}"), Reply(status=400, body=words.encode())]
    seen, sent = "", ""
    with model_server(replies) as server:
        for model in ("openai-compatible/m", "mistral/m", "groq/m"):
            for output in ("text", "stream-json"):
                args = ["--model", model, "--base-url", server.base_url, "--output", output, "--debug"]
                ran = aar("run", *args, "hi", cwd=project, env=env)
                assert ran.code == 4, (model, ran.err)
                seen += _without_echo(ran.out + ran.err, model)
        sent = str([request.headers for request in server.requests])
    for command in (
        ["doctor"],
        ["models", "show", "mistral/m", "--json"],
        ["config", "show", "--origin"],
        ["config", "show", "--json"],
        ["run", "--model", "vllm/m", "x"],
    ):
        ran = aar(*command, cwd=project, env=env)
        seen += ran.out + ran.err
    for name in ODD.values():
        assert name in sent, "the test seeds a key that is never used"
        assert name not in seen, name
    for path in Path(os.environ["AAR_HOME"]).rglob("*"):
        if path.is_file() and path.parent != config.parent:
            for name in ODD.values():
                assert name.encode() not in path.read_bytes() or _told_by_server(path), (path, name)


def _without_echo(text: str, model: str) -> str:
    """Return what aar itself said: the server of this test also tells keys that were never sent to it."""
    own = {"openai-compatible/m": ("file",), "mistral/m": ("env", "header"), "groq/m": ("command",)}[model]
    for name, value in ODD.items():
        if name not in own:
            text = text.replace(value, "")
    return text


def _told_by_server(path: Path) -> bool:
    return path.suffix in (".jsonl", ".log") and all(
        sum(value in line for value in ODD.values()) < len(ODD) for line in path.read_text().splitlines()
    )
