"""``aar doctor``: what it finds, what it says to do, and that what it hands out holds no secret."""

from __future__ import annotations

import os
import stat
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from aar.transports.cli.doctor_checks import _terminal
from tests.cli.support import aar, script, stored
from tests.support.model_server import Reply, model_server


def config(text: str) -> Path:
    file = Path(os.environ["AAR_HOME"]) / "config" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def checks(project: Path, *args: str, **more: Any) -> dict[str, dict[str, str]]:
    told = aar("doctor", "--json", *args, cwd=project, **more).json
    return {check["name"]: check for check in told["checks"]}


def test_every_problem_of_the_config_is_told_with_its_line(project: Path) -> None:
    config("[limits]\nsteps = 0\nstepz = 3\n[modle]\n")
    ran = aar("doctor", "--json", cwd=project)
    wrong = [check for check in ran.json["checks"] if check["name"] == "config"]
    assert (ran.code, ran.json["usable"], len(wrong)) == (3, False, 3)
    assert {check["status"] for check in wrong} == {"fail"}
    assert all("config.toml, line" in check["detail"] for check in wrong)
    assert all(check["fix"] for check in wrong)


def test_what_a_folder_brings_along_is_told_with_whether_it_acts(project: Path, hello: str) -> None:
    assert "brings nothing" in checks(project)["trust"]["detail"]
    (project / "AGENTS.md").write_text("Be brief.")
    told = checks(project)["trust"]
    assert (told["status"], "aar trust" in told["fix"]) == ("warn", True)
    assert aar("trust", cwd=project).code == 0
    assert checks(project)["trust"]["status"] == "ok"
    (project / "AGENTS.md").write_text("Be long.")
    assert "changed since" in checks(project)["trust"]["detail"]


def test_a_torn_session_is_told_with_what_to_do_and_is_well_after_that(project: Path, hello: str) -> None:
    aar("run", "--model", hello, "hi", cwd=project)
    with stored()[0].open("ab") as file:
        file.write(b'{"type":"assistant_mess')
    told = checks(project)["sessions"]
    assert (told["status"], "need repair" in told["detail"]) == ("warn", True)
    assert f"aar run --session {stored()[0].stem}" in told["fix"]
    assert aar("run", "--model", hello, "--session", stored()[0].stem, "again", cwd=project).code == 0
    assert checks(project)["sessions"]["status"] == "ok"
    stored()[0].write_bytes(b"\0" * 100)
    assert "cannot be read" in checks(project)["sessions"]["detail"]


def test_the_size_of_the_data_folder_is_told(project: Path, hello: str) -> None:
    aar("run", "--model", hello, "hi", cwd=project)
    assert os.environ["AAR_HOME"] in checks(project)["data size"]["detail"]


def test_servers_and_keys_of_the_config_are_told_and_no_value_is(project: Path) -> None:
    config(
        '[providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "MINE_KEY"\n'
        '[mcp.servers.there]\ncommand = "sh"\n[mcp.servers.gone]\ncommand = "no-such-program-here"\n'
        '[mcp.servers.off]\ncommand = "no-such-either"\nenabled = false\n'
    )
    told = checks(project, env={"MINE_KEY": "value-of-the-key-123"})
    assert "mine (MINE_KEY is set)" in told["keys"]["detail"]
    assert (told["mcp servers"]["status"], told["mcp servers"]["detail"]) == (
        "warn", "no program for gone (no-such-program-here)",
    )  # fmt: skip
    assert "value-of-the-key" not in str(told)


def test_nothing_is_asked_without_online(project: Path) -> None:
    with model_server([Reply(text="x")], models=["m"]) as server:
        config(f'[providers.mine]\nbase_url = "{server.base_url}"\n[model]\nname = "openai-compatible/m"\n')
        aar("doctor", cwd=project)
        assert server.requests == []


def test_online_asks_the_server_of_each_configured_model(project: Path) -> None:
    with model_server([Reply(text="x")], models=["big", "small"]) as server:
        where = f'[providers.openai-compatible]\nbase_url = "{server.base_url}"\n'
        config(
            where + '[model]\nname = "openai-compatible/big"\nsmall = "openai-compatible/none"\n'
            'fallback = ["vllm/x", "openai-compatible/small"]\n[providers.vllm]\nbase_url = "http://127.0.0.1:9/v1"\n'
        )
        told = checks(project, "--online")
    assert told["online openai-compatible/big"]["status"] == "ok"
    assert told["online openai-compatible/small"]["status"] == "ok"
    assert "not this one" in told["online openai-compatible/none"]["detail"]
    assert told["online vllm/x"]["status"] == "warn"
    assert told["online vllm/x"]["fix"]


def test_online_fails_when_the_model_that_answers_cannot_be_reached(project: Path, hello: str) -> None:
    config('[model]\nname = "vllm/x"\n[providers.vllm]\nbase_url = "http://127.0.0.1:9/v1"\n')
    ran = aar("doctor", "--json", "--online", cwd=project)
    assert (ran.code, ran.json["usable"]) == (3, False)
    told = checks(project, "--online", "--model", hello)
    assert "nothing to ask" in told[f"online {hello}"]["detail"]


SECRETS = {
    "variable": "zq8Kd02mXw7Lp4Vn",
    "kept": "kp93Jsl20Dmxw8Qz",
    "header": "hd71Bnc63Ptwy5Ra",
    "mcp": "mc44Xkz19Gthu2Wq",
    "argument": "sk-proj-ArGuMeNtKey0123456789",
    "command": "cm55Lpo88Yuie3Zx",
    "extra": "ex66Mnb77Rtyu1Sd",
    "url": "ur20Vfr45Tgbh9Nj",
    "said": "sd31Hgf82Kjmn6Bv",
    "logged": "ghp_LoGGedTokenLoGGedTokenLoGGedToken",
}


def seeded(project: Path, tmp_path: Path) -> dict[str, str | None]:
    """Put a secret everywhere where one may be; return the environment."""
    config(
        '[log]\nlevel = "debug"\ntrace = ["llm"]\n'
        f'[providers.groq]\nbase_url = "https://user:{SECRETS["url"]}@127.0.0.1:9/v1"\n'
        f'api_key_command = "echo {SECRETS["command"]}"\n'
        f'[providers.groq.headers]\nX-Any = "{SECRETS["header"]}"\n'
        f'[providers.groq.extra]\nuser = "{SECRETS["extra"]}"\n'
        f'[mcp.servers.one]\ncommand = "sh"\nargs = ["--token", "{SECRETS["argument"]}"]\n'
        f'[mcp.servers.one.env]\nANY = "{SECRETS["mcp"]}"\n'
    )
    aar(
        "auth",
        "set",
        "openai-compatible",
        "--host",
        "127.0.0.1",
        "--stdin",
        cwd=project,
        stdin=SECRETS["kept"],
    )
    model = script(tmp_path / "s.json", f"I heard {SECRETS['said']}.")
    aar("run", "--debug", "--model", model, f"The word is {SECRETS['said']}.", cwd=project)
    log = Path(os.environ["AAR_HOME"]) / "logs" / "aar.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        for name in ("logged", "header", "kept", "variable"):
            file.write(f"2026-01-01 00:00:00,000 INFO 1 aar.x: saw {SECRETS[name]} here\n")
        file.write(
            f"2026-01-01 00:00:00,000 DEBUG 1 aar.trace.llm: request {SECRETS['said']}\n    {SECRETS['said']}\n"
        )
        file.write("2026-01-01 00:00:00,000 INFO 1 aar.x: the last line\n")
    return {"GROQ_API_KEY": SECRETS["variable"], "AAR_PROVIDERS__GROQ__HEADERS__X_B": SECRETS["header"]}


@pytest.mark.parametrize("broken", [False, True])
def test_the_archive_for_bug_reports_holds_what_helps_and_no_secret(
    project: Path, tmp_path: Path, broken: bool
) -> None:
    env = seeded(project, tmp_path)
    if broken:
        file = Path(os.environ["AAR_HOME"]) / "config" / "config.toml"
        file.write_text(file.read_text() + "[nonsense]\n")
    target = tmp_path / "report.tar.gz"
    ran = aar("doctor", "--bundle", target, cwd=project, env=env)
    assert (ran.code, str(target) in ran.out) == (3 if broken else 0, True)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with tarfile.open(target) as archive:
        held = {Path(item.name).name: archive.extractfile(item).read().decode() for item in archive}  # type: ignore[union-attr]
    assert set(held) == {
        "README.txt", "doctor.json", "environment.txt", "packages.txt", "config.json", "sessions.txt", "log.txt",
    }  # fmt: skip
    assert "the last line" in held["log.txt"]
    assert "pydantic " in held["packages.txt"]
    assert "GROQ_API_KEY is set" in held["environment.txt"]
    assert stored()[0].stem in held["sessions.txt"]
    assert broken or "providers.groq.headers" in held["config.json"]
    assert os.environ["HOME"] not in "".join(held.values())
    for name, secret in SECRETS.items():
        for where, text in held.items():
            assert secret not in text, (name, where)


def test_an_archive_overwrites_nothing_and_has_a_name_of_its_own(project: Path) -> None:
    (project / "there").write_text("mine")
    ran = aar("doctor", "--bundle", "there", cwd=project)
    assert (ran.code, (project / "there").read_text()) == (3, "mine")
    assert aar("doctor", "--bundle", "no/where", cwd=project).code == 3
    told = aar("doctor", "--json", "--bundle", cwd=project).json
    assert told["bundle"].startswith("aar-doctor-")
    assert tarfile.is_tarfile(project / told["bundle"])


def test_the_terminal_is_looked_at_though_a_screen_holds_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", object())
    assert _terminal().status == "ok"
