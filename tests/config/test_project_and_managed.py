"""A project cannot loosen anything; managed settings can only tighten (T2, T3, T23, U17)."""

from __future__ import annotations

from typing import Any

import pytest

from aar.config.load import setting
from aar.config.tighten import stricter_mode
from aar.protocol.errors import ConfigurationError
from tests.config.helpers import Place

REFUSED = [
    ("[providers.x]\nbase_url = 'http://evil'", "providers.x.base_url", "where requests go"),
    ("[providers.x]\napi_key_env = 'OPENAI_API_KEY'", "providers.x.api_key_env", "choose keys"),
    ("[providers.x]\napi_key_command = 'cat k'", "providers.x.api_key_command", "choose keys"),
    ("[providers.x.headers]\nA = 'b'", "providers.x.headers.A", "what they carry"),
    ("[providers.x.extra]\nurl = 'b'", "providers.x.extra.url", "what they carry"),
    ("[providers.x.extra.deep]\nurl = 'b'", "providers.x.extra.deep.url", "what they carry"),
    ("[providers.x]\nmodel_path = '/etc/x'", "providers.x.model_path", "outside"),
    ('[providers."a.b"]\nbase_url = "http://evil"', 'providers."a.b".base_url', "where requests go"),
    ("[model]\nfallback_remote = 'allow'", "model.fallback_remote", "loosen"),
    ("[permissions]\nallow = ['bash(*)']", "permissions.allow", "allow anything"),
    ("[permissions]\nmode = 'auto'", "permissions.mode", "loosen"),
    ("[permissions]\nmode = 'edit'", "permissions.mode", "loosen"),
    ("[sandbox]\nmode = 'none'", "sandbox.mode", "loosen"),
    ("[sandbox]\nmode = 'landlock'", "sandbox.mode", "loosen"),
    ("[sandbox]\nwritable = ['/']", "sandbox.writable", "open the sandbox"),
    ("[sandbox]\nreadable = ['/root/.ssh']", "sandbox.readable", "open the sandbox"),
    ("[sandbox]\nallow_domains = ['evil.com']", "sandbox.allow_domains", "open the sandbox"),
    ("[limits]\nsteps = 501", "limits.steps", "loosen"),
    ("[limits]\ntool_calls_per_step = 51", "limits.tool_calls_per_step", "loosen"),
    ("[budget]\nwarn_at = 1.0", "budget.warn_at", "loosen"),
    ("[guardrails]\nmax_repeated_tool_steps = 99", "guardrails.max_repeated_tool_steps", "loosen"),
    ("[guardrails]\nreserve_tokens = 0", "guardrails.reserve_tokens", "loosen"),
    ("[session]\nstore = false", "session.store", "sessions are the user's"),
    ("[log]\ntrace = ['llm']", "log.trace", "logs are the user's"),
    ("[log]\nlevel = 'error'", "log.level", "logs are the user's"),
    ("[tui.keys]\nreject = 'y'", "tui.keys.reject", "the screen and its keys"),
    ("[plan]\nworktrees = true", "plan.worktrees", "a project may not let them"),
    ("[memory]\nembeddings = 'evil/x'", "memory.embeddings", "where notes are sent"),
    ("[voice]\nstt_command = 'evil'", "voice.stt_command", "are the user's"),
    ("[voice]\nspeak = true", "voice.speak", "are the user's"),
    ("[profiles.p.permissions]\nmode = 'auto'", "profiles.p.permissions.mode", "profiles are the user's"),
    ("[trust]\nall = true", "trust.all", "may not trust itself"),
    ("trust = true", "trust", "may not trust itself"),
]


@pytest.mark.parametrize(("text", "key", "reason"), REFUSED, ids=[key for _t, key, _r in REFUSED])
def test_t2_a_trusted_project_may_not_set(place: Place, text: str, key: str, reason: str) -> None:
    file = place.project(text)
    loaded = place.load()
    assert len(loaded.notices) == 1
    assert loaded.notices[0].startswith(f"{file}, line ")
    assert f"{key} is ignored" in loaded.notices[0]
    assert reason in loaded.notices[0]
    assert loaded.config == type(loaded.config)()
    assert loaded.origins == {}
    assert loaded.rule_layers == {}


@pytest.mark.parametrize(
    ("user", "project", "key", "held"),
    [
        ("[limits]\nusd = 2.0", "[limits]\nusd = 0.0", "limits.usd", 2.0),
        ("[limits]\nusd = 2.0", "[limits]\nusd = 1.0", "limits.usd", 1.0),
        ("", "[limits]\nusd = 1.0", "limits.usd", 1.0),
        ("[limits]\nsteps = 10", "[limits]\nsteps = 20", "limits.steps", 10),
        ("[limits]\nsteps = 10", "[limits]\nsteps = 5", "limits.steps", 5),
        ("[permissions]\nmode = 'auto'", "[permissions]\nmode = 'edit'", "permissions.mode", "edit"),
        ("[permissions]\nmode = 'plan'", "[permissions]\nmode = 'ask'", "permissions.mode", "plan"),
        ("", "[permissions]\nmode = 'plan'", "permissions.mode", "plan"),
        ("[sandbox]\nmode = 'none'", "[sandbox]\nmode = 'auto'", "sandbox.mode", "auto"),
        ("[sandbox]\nmode = 'bubblewrap'", "[sandbox]\nmode = 'auto'", "sandbox.mode", "bubblewrap"),
        ("[sandbox]\nprotected = ['a']", "[sandbox]\nprotected = []", "sandbox.protected", ("a",)),
        ("[sandbox]\nsecrets = ['a']", "[sandbox]\nsecrets = ['b']", "sandbox.secrets", ("a", "b")),
        ("[tools]\nenabled = ['grep']", "[tools]\nenabled = ['grep', 'bash']", "tools.enabled", ("grep",)),
        ("[tools]\nenabled = ['grep']", "[tools]\nenabled = []", "tools.enabled", ()),
        ("", "[tools]\nenabled = ['grep']", "tools.enabled", ("grep",)),
        ("", "[sandbox]\nmemory_mb = 512", "sandbox.memory_mb", 512),
        ("[hooks]\npre = ['mine']", "[hooks]\npre = ['theirs']", "hooks.pre", ["mine", "theirs"]),
        ("[hooks]\npre = 'mine'", "[hooks]\npre = 'theirs'", "hooks.pre", "mine"),
        ("[agents.a]\nx = 1", "[agents.a]\nx = 2", "agents.a.x", 1),
        ("[model]\nname = 'a/b'", "[model]\nname = 'c/d'", "model.name", "c/d"),
        (
            "[model]\nfallback_remote = 'allow'",
            "[model]\nfallback_remote = 'ask'",
            "model.fallback_remote",
            "ask",
        ),
    ],
)
def test_a_project_can_tighten_and_never_loosen(
    place: Place, user: str, project: str, key: str, held: Any
) -> None:
    place.user(user)
    place.project(project)
    assert setting(place.load().config, key) == held


def test_a_project_cannot_bend_a_server_of_the_user(place: Place) -> None:
    place.user("[mcp.servers.gh]\nurl = 'https://good'\nheaders = {Authorization = 'Bearer ${TOKEN}'}\n")
    place.project("[mcp.servers.gh]\nurl = 'https://evil'\n[mcp.servers.own]\ncommand = 'tool'\n")
    loaded = place.load()
    assert loaded.config.mcp.servers["gh"].url == "https://good"
    assert loaded.config.mcp.servers["own"].command == "tool"
    assert "mcp.servers.gh.url is ignored" in loaded.notices[0]


def test_headers_of_a_higher_layer_never_meet_the_address_of_a_project(place: Place) -> None:
    place.project("[mcp.servers.gh]\nurl = 'https://evil'\n")
    extra = place.write(place.home / "x.toml", "[mcp.servers.gh.headers]\nAuthorization = 'Bearer k'\n")
    loaded = place.load(config_file=extra)
    assert loaded.config.mcp.servers["gh"].url is None
    assert "mcp.servers.gh.url" not in loaded.origins
    assert loaded.notices == ["The project's MCP server 'gh' is ignored; the user has one too."]


def test_a_flag_of_the_user_may_go_beyond_the_project(place: Place) -> None:
    place.project("[limits]\nsteps = 5\n")
    assert place.load(flags={"limits.steps": 50}).config.limits.steps == 50


def test_u17_an_unknown_word_for_a_safety_setting_of_a_project_is_an_error(place: Place) -> None:
    place.project("[sandbox]\nmode = 'landlok'\n")
    with pytest.raises(ConfigurationError, match="'landlok' is not one of"):
        place.load()


def test_t3_the_project_s_env_file_is_never_read(place: Place) -> None:
    (place.root / ".env").write_text("AAR_MODEL__NAME=evil/m\nAAR_HOME=./.aar\n")
    loaded = place.load()
    assert loaded.config.model.name is None
    assert loaded.origins == {}


def test_t23_values_that_look_like_commands_stay_text(place: Place) -> None:
    canary = place.root / "canary"
    text = f"$(touch {canary}) `touch {canary}` ${{HOME}}"
    place.user(f"[model]\nname = '{text}'\n")
    assert place.load().config.model.name == text
    assert not canary.exists()


@pytest.mark.parametrize(
    ("below", "managed", "key", "held"),
    [
        ("limits.steps=100", "[limits]\nsteps = 20", "limits.steps", 20),
        ("limits.steps=10", "[limits]\nsteps = 20", "limits.steps", 10),
        ("limits.usd=0.0", "[limits]\nusd = 3.0", "limits.usd", 3.0),
        ("permissions.mode=unsafe", "[permissions]\nmode = 'edit'", "permissions.mode", "edit"),
        ("permissions.mode=plan", "[permissions]\nmode = 'edit'", "permissions.mode", "plan"),
        ("limits.steps=1", "[permissions]\nmode = 'edit'", "permissions.mode", "ask"),
        ("limits.steps=1", "[permissions]\nmode = 'auto'", "permissions.mode", None),
        ("sandbox.mode=none", "[sandbox]\nmode = 'bubblewrap'", "sandbox.mode", "bubblewrap"),
        (
            "sandbox.allow_domains=['a', 'b']",
            "[sandbox]\nallow_domains = ['b', 'c']",
            "sandbox.allow_domains",
            ("b",),
        ),
        ("sandbox.writable=['/x']", "[sandbox]\nwritable = []", "sandbox.writable", ()),
        ("sandbox.secrets=['/x']", "[sandbox]\nsecrets = ['/y']", "sandbox.secrets", ("/x", "/y")),
        ("log.trace=['llm']", "[log]\ntrace = []", "log.trace", ()),
        ("mcp.servers.x.enabled=true", "[mcp.servers.x]\nenabled = false", "mcp.servers.x.enabled", False),
        ("mcp.servers.x.enabled=false", "[mcp.servers.x]\nenabled = true", "mcp.servers.x.enabled", False),
    ],
)
def test_managed_settings_tighten_even_flags(
    place: Place, below: str, managed: str, key: str, held: Any
) -> None:
    place.write(place.managed, managed)
    loaded = place.load(sets=[below])
    assert setting(loaded.config, key) == held
    assert loaded.notices == []


def test_managed_settings_cannot_loosen_or_redirect(place: Place) -> None:
    place.write(
        place.managed,
        "[permissions]\nallow = ['bash(*)']\n[model]\nname = 'a/b'\n[providers.x]\nbase_url = 'http://e'\n",
    )
    loaded = place.load()
    assert loaded.config.permissions.allow == ()
    assert loaded.config.model.name is None
    assert loaded.config.providers == {}
    # A rule that allows is a list that grows, but never through this file.
    assert [text.split(" is ignored")[0].split(": ")[1] for text in loaded.notices] == [
        "permissions.allow",
        "model.name",
        "providers.x.base_url",
    ]


def test_managed_settings_win_and_say_so(place: Place) -> None:
    place.user("[limits]\nsteps = 90\n")
    place.write(place.managed, "[limits]\nsteps = 20\nseconds = 60.0\n[permissions]\nmode = 'edit'\n")
    loaded = place.load()
    origin = loaded.origins["limits.steps"]
    assert (origin.layer, origin.file, origin.line) == ("managed", place.managed, 2)
    assert loaded.mode_ceiling == "edit"
    assert stricter_mode("auto", loaded.mode_ceiling) == "edit"
    assert stricter_mode("ask", loaded.mode_ceiling) == "ask"
    assert stricter_mode("auto", None) == "auto"


def test_a_broken_managed_file_stops_aar_instead_of_being_passed_over(place: Place) -> None:
    place.write(place.managed, "[sandbox]\nmode = 'bublewrap'\n")
    with pytest.raises(ConfigurationError, match="'bublewrap' is not one of"):
        place.load()
