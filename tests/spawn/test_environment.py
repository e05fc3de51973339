"""The environment of children (T18), and that there is one door to processes (T21)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import aar
from aar.config.schema import SandboxConfig
from aar.safety.environment import child_environment, is_secret_name
from aar.safety.sandbox.caches import cache_folders, cache_variables
from aar.safety.spawn import ProcessSpawner
from tests.spawn.conftest import shell

SECRETS = (
    "ANTHROPIC_API_KEY OPENAI_API_KEY AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN GITHUB_TOKEN GH_PAT DB_PASSWORD "
    "NPM_AUTH GOOGLE_APPLICATION_CREDENTIALS SSH_AUTH_SOCK AAR_HOME AAR_MODEL__NAME SENTRY_DSN MY_PRIVATE COOKIE "
    "LC_API_KEY GIT_ASKPASS_TOKEN aar_home"
).split()


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_reaches_a_child_of_any_kind(name: str) -> None:
    for kind in ("tool", "helper", "interactive"):
        assert name not in child_environment({name: "x"}, kind)


def test_unknown_names_stay_behind_and_known_ones_pass() -> None:
    environ = {
        "PATH": "/v/bin",
        "VIRTUAL_ENV": "/v",
        "LC_ALL": "C",
        "HOME": "/h",
        "MY_APP_MODE": "x",
        "LD_PRELOAD": "x",
    }
    env = child_environment(environ)
    assert {name: env[name] for name in ("PATH", "VIRTUAL_ENV", "LC_ALL", "HOME")} == {
        "PATH": "/v/bin", "VIRTUAL_ENV": "/v", "LC_ALL": "C", "HOME": "/h",
    }  # fmt: skip
    assert not {"MY_APP_MODE", "LD_PRELOAD"} & set(env)
    assert child_environment(environ, "interactive")["MY_APP_MODE"] == "x"


def test_programs_are_kept_from_waiting_for_a_person() -> None:
    env = child_environment({})
    assert (env["PAGER"], env["GIT_PAGER"], env["GIT_TERMINAL_PROMPT"], env["TERM"]) == (
        "cat",
        "cat",
        "0",
        "dumb",
    )
    assert env["PATH"]


def test_additions_win_and_may_be_secrets_because_the_caller_named_them() -> None:
    env = child_environment({"PATH": "/a"}, additions={"PATH": "/b", "SERVER_TOKEN": "t"})
    assert (env["PATH"], env["SERVER_TOKEN"]) == ("/b", "t")


@pytest.mark.parametrize("name", ["PATH", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "HOME", "PWD", "LANG"])
def test_plain_names_do_not_look_secret(name: str) -> None:
    assert not is_secret_name(name)


async def test_a_command_sees_only_the_allow_list(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "canary-5c3f")
    spawner = ProcessSpawner(workspace, SandboxConfig(mode="none"))
    try:
        for kind in ("tool", "helper"):
            result = await shell(
                spawner, "env; cat /proc/self/environ /proc/$PPID/environ", workspace, kind=kind
            )
            assert b"canary-5c3f" not in result.output
            assert b"PATH=" in result.output
        assert f"TMPDIR={spawner.temp_folder}".encode() in (await shell(spawner, "env", workspace)).output
    finally:
        spawner.close()


DOORS = {"safety/spawn.py", "safety/spawn_link.py", "safety/spawn_process.py"}
STARTS = re.compile(
    r"\bsubprocess\b|create_subprocess|\bos\.(system|popen|fork|forkpty|posix_spawn|exec[lv]|spawn[lv])|\bpty\b"
    r"|\bmultiprocessing\b|ProcessPoolExecutor|\bpexpect\b"
)


def test_processes_start_in_one_place_only() -> None:
    root = Path(aar.__file__).parent
    offenders = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        if (name := path.relative_to(root).as_posix()) not in DOORS
        and not name.startswith("safety/spawn_server/")
        and not name.startswith("providers/local")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if STARTS.search(line.partition("#")[0]) and not line.lstrip().startswith(('"', "'"))
    ]
    assert offenders == []


def test_a_cache_that_is_not_there_yet_goes_to_the_private_folder(tmp_path: Path) -> None:
    home, temp = tmp_path / "home", tmp_path / "temp"
    (home / ".cargo/bin").mkdir(parents=True)  # as its installer leaves it
    (home / ".cache/pip").mkdir(parents=True)
    variables = cache_variables({}, home, temp, every=False)
    assert variables["CARGO_HOME"] == f"{temp}/caches/.cargo"
    assert "PIP_CACHE_DIR" not in variables
    assert cache_folders({}, home) == (home / ".cache/pip",)
    (home / ".cargo/registry").mkdir()
    assert "CARGO_HOME" not in cache_variables({}, home, temp, every=False)
    assert cache_folders({}, home) == (home / ".cache/pip", home / ".cargo/registry")
    assert "PIP_CACHE_DIR" in cache_variables({}, home, temp, every=True)
