"""T8, T9, T11 to T14, T19, T22: one attack each, at the place that must refuse it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aar
from aar.config.schema import Config, ProviderConfig
from aar.runtime.policy import model_hosts
from aar.safety.rules import normal_host, parse_rule
from aar.safety.sandbox.domains import AllowedDomains, BadHostError, parse_host
from aar.tools.builtin.catalogue import builtin_tools
from tests.cli.support import aar as run_aar
from tests.cli.support import script
from tests.policy.support import check

_LISTENS = re.compile(
    r"start_server|start_unix_server|listen(ing|er)?\.listen\(|create_server|HTTPServer|uvicorn\.Server"
)
_MAY_LISTEN = {
    "extensions/mcp_oauth.py",  # while the user signs in: one answer, with the state that was sent
    "providers/local/worker.py",  # a Unix socket
    "safety/sandbox/proxy.py",  # inside the private network
    "safety/spawn_server/network.py",
    "transports/serve/listen.py",  # `aar serve`, behind its guard
}


def test_t8_nothing_listens_but_named_doors() -> None:
    root = Path(aar.__file__).parent
    found = [
        path.relative_to(root).as_posix()
        for path in sorted(root.rglob("*.py"))
        if _LISTENS.search(path.read_text())
    ]
    assert set(found) <= _MAY_LISTEN
    assert "transports/serve/listen.py" in found


@pytest.mark.parametrize("prompt", ["--trust", "--mode=unsafe", "-q", "--set", "--config=evil.toml"])
def test_t9_a_prompt_that_looks_like_a_flag_is_a_prompt(tmp_path: Path, prompt: str) -> None:
    project = tmp_path / "p"
    (project / ".aar").mkdir(parents=True)
    (project / ".aar/config.toml").write_text("[limits]\nsteps = 1\n")
    model = script(tmp_path / "m.json", "Read.")
    ran = run_aar("run", "--model", model, "--output", "stream-json", "--", prompt, cwd=project)
    assert ran.code == 0
    said = next(event for event in ran.lines if event["type"] == "user_message")
    assert said["content"][0]["text"] == prompt
    assert "--trust" in json.dumps([event for event in ran.lines if event["type"] == "notice"])


@pytest.mark.parametrize(
    "command",
    ["export PATH=/tmp/x:$PATH", "alias ls='rm -rf .'", "source ./x", ". ./x", "eval ls", "trap 'rm x' EXIT", "PATH=/tmp ls",
     "typeset -x A=b", "declare -x A=b", "readonly A=b", "set -a", "hash -p /tmp/x ls", "enable -n test", "unset PATH",
     "shopt -s expand_aliases", "bind -x '\"a\":rm x'", "builtin cd x", "read A", "GIT_PAGER=./x git log", "LD_PRELOAD=./x ls"],
)  # fmt: skip
@pytest.mark.parametrize("tail", ["", " && git status", "; ls"])
def test_t11_what_poisons_the_shell_is_never_automatic(tmp_path: Path, command: str, tail: str) -> None:
    assert check(tmp_path, command + tail).decision == "ask"
    assert check(tmp_path, command + tail, "edit", allow=["bash(ls *)", "bash(git *)"]).decision == "ask"


@pytest.mark.parametrize(
    "url",
    ["https://docs.python.org.evil.com/", "https://docs.python.org@evil.com/", "https://evil.com/#docs.python.org",
     "https://evil.com?docs.python.org", "https://docs.python.org\\@evil.com/", "https://docs-python.org/",
     "https://docs.python.org%00.evil.com/", "https://evil.com/.docs.python.org", "https://xdocs.python.org/",
     "https://[::1]/docs.python.org", "https://ｄocs.python.org.evil.com/"],
)  # fmt: skip
def test_t12_no_address_only_looks_like_an_allowed_host(url: str) -> None:
    host = normal_host(url)
    assert host is None or not parse_rule("web_fetch(domain:docs.python.org)").matches_host(host)


@given(
    st.text(min_size=1, max_size=30),
    st.sampled_from(["\0", "\r\n", "\t", " ", "\x7f", "@", "/", "\\", "%00", "#"]),
)
def test_t13_a_host_with_odd_characters_is_no_host(name: str, odd: str) -> None:
    domains = AllowedDomains(["*.google.com", "google.com"])
    for text in (f"evil.com{odd}.google.com", f"{name}{odd}google.com"):
        try:
            host = parse_host(text)
        except BadHostError:
            continue
        assert odd not in host
        blocked = domains.judge(host, 443)
        assert blocked is not None or host == "google.com" or host.endswith(".google.com")
        assert "evil.com" not in host or blocked is not None


@pytest.mark.parametrize(
    "command",
    [
        "dig a.evil.com TXT",
        "nslookup a.evil.com",
        "host a.evil.com",
        "ping -c1 a.evil.com",
        "getent hosts a.evil.com",
    ],
)
def test_t14_name_look_ups_are_not_on_the_safe_list(tmp_path: Path, command: str) -> None:
    assert check(tmp_path, command).decision == "ask"
    assert check(tmp_path, command, "plan").decision == "deny"


def test_t19_hosts_of_models_stay_out_of_reach_though_they_are_allowed() -> None:
    config = Config(providers={"mine": ProviderConfig(base_url="https://LLM.example.org/v1")})
    never = model_hosts(config, "https://other.example.net:8443/v1")
    assert never == ("other.example.net", "llm.example.org")
    assert model_hosts(config, "http://127.0.0.1:8080/v1") == ("llm.example.org",)
    domains = AllowedDomains(["*.example.org", "api.anthropic.com", "pypi.org"], never)
    for host in ("llm.example.org", "api.anthropic.com"):
        blocked = domains.judge(host, 443)
        assert blocked is not None
        assert blocked.rule is None
    assert domains.judge("pypi.org", 443) is None


def test_t22_the_model_has_no_word_about_the_wall(tmp_path: Path) -> None:
    words = re.compile(r"sandbox|wall|unsafe|network|permission|trust|sudo", re.IGNORECASE)
    for spec in builtin_tools():
        assert not [name for name in spec.input_schema.get("properties", {}) if words.search(name)], spec.name
    project = tmp_path / "p"
    project.mkdir()
    model = script(tmp_path / "m.json", "Done.")
    ran = run_aar("run", "x", "--mode", "auto", "--set", "sandbox.mode=none", "--model", model, cwd=project)
    assert ran.code == 3
    assert "sandbox" in ran.err
