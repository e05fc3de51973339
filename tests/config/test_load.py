"""Layers, where values come from, and what a wrong file is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aar.config.load import setting, validate_file
from aar.config.schema import Config
from aar.protocol.errors import ConfigurationError, UsageError
from tests.config.helpers import Place
from tests.support.work import calls_made


def test_without_any_file_everything_is_built_in_and_has_no_origin(place: Place) -> None:
    loaded = place.load()
    assert loaded.config == Config()
    assert loaded.origins == {}
    assert loaded.notices == []
    assert loaded.rule_layers == {}
    assert not place.paths.config.exists()


def test_loading_without_files_is_little_work(place: Place) -> None:
    place.load()
    # Within five milliseconds on a quiet machine.
    assert calls_made(place.load) < 5_000


def test_each_layer_wins_over_the_ones_below(place: Place) -> None:
    user = place.user(
        "[model]\nname = 'user/m'\nretries = 1\ntemperature = 0.1\nstream = false\n"
        "max_output_tokens = 10\nsmall = 'user/s'\n[profiles.p.model]\nretries = 2\ntemperature = 0.2\n"
        "max_output_tokens = 20\nsmall = 'profile/s'\n"
    )
    place.project("[model]\ntemperature = 0.3\nmax_output_tokens = 30\nsmall = 'project/s'\n")
    extra = place.write(place.home / "extra.toml", "[model]\nmax_output_tokens = 40\nsmall = 'file/s'\n")
    loaded = place.load(
        config_file=extra,
        profile="p",
        environ={"AAR_MODEL__SMALL": "env/s", "AAR_HOME": "ignored", "PATH": "/bin"},
        flags={"model.api": "chat", "model.dialect": None},
        sets=["model.cache=off"],
    )
    model = loaded.config.model
    assert (model.name, model.retries, model.temperature) == ("user/m", 2, 0.3)
    assert (model.max_output_tokens, model.small, model.api, model.cache) == (40, "env/s", "chat", "off")
    assert model.stream is False
    assert model.dialect == "auto"
    told = {key: (o.layer, o.file, o.line) for key, o in loaded.origins.items()}
    assert told == {
        "model.name": ("user", user, 2),
        "model.stream": ("user", user, 5),
        "model.retries": ("profile", user, 9),
        "model.temperature": ("project", place.root / ".aar/config.toml", 2),
        "model.max_output_tokens": ("config", extra, 2),
        "model.small": ("environment", None, None),
        "model.api": ("flags", None, None),
        "model.cache": ("flags", None, None),
    }
    assert loaded.origins["model.small"].place == "The environment variable AAR_MODEL__SMALL"
    assert loaded.origins["model.cache"].place == "--set model.cache"


def test_an_untrusted_project_is_not_even_read(place: Place) -> None:
    place.project("this is not TOML")
    assert place.load(trusted=False).config == Config()
    with pytest.raises(ConfigurationError, match="not TOML"):
        place.load(trusted=True)


def test_the_project_config_is_found_from_a_folder_below(place: Place) -> None:
    place.project("[limits]\nsteps = 7\n")
    below = place.root / "a/b"
    below.mkdir(parents=True)
    from aar.config.load import load_config

    loaded = load_config(below, paths=place.paths, trusted=True, environ={}, managed_file=place.managed)
    assert loaded.config.limits.steps == 7


def test_rules_of_all_layers_add_up_and_keep_their_layer(place: Place) -> None:
    place.user("[permissions]\nallow = ['bash(ls *)']\ndeny = ['bash(rm *)']\n")
    place.project("[permissions]\nask = ['write(src/**)']\ndeny = ['read(secret/**)']\n")
    place.write(place.managed, "[permissions]\ndeny = ['bash(curl *)']\n")
    loaded = place.load(sets=["permissions.deny=[]", "permissions.allow=['bash(make)']"])
    permissions = loaded.config.permissions
    assert permissions.allow == ("bash(ls *)", "bash(make)")
    assert permissions.ask == ("write(src/**)",)
    assert permissions.deny == ("bash(rm *)", "read(secret/**)", "bash(curl *)")
    assert loaded.rule_layers == {
        "user": {"allow": ("bash(ls *)",), "ask": (), "deny": ("bash(rm *)",)},
        "project": {"allow": (), "ask": ("write(src/**)",), "deny": ("read(secret/**)",)},
        "flags": {"allow": ("bash(make)",), "ask": (), "deny": ()},
        "managed": {"allow": (), "ask": (), "deny": ("bash(curl *)",)},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n[modle]\nname = 'x'\n", "line 2: modle is not a known key; did you mean model?"),
        ("[model]\n\nnmae = 'x'\n", "line 3: model.nmae is not a known key; did you mean model.name?"),
        ("[model]\nmax-output-tokens = 1\n", "did you mean model.max_output_tokens?"),
        ("deny = ['x']\n", "line 1: deny is not a known key; did you mean permissions.deny?"),
        ("[session]\nzzz = 1\n", "session.zzz is not a known key; known keys here: audit, store."),
        ("[tools]\nenabld = []\n", "line 2: tools.enabld is not a known key; did you mean tools.enabled?"),
        ("[tools.bash]\ntimeout = 'x'\n", "line 2: tools.bash.timeout: expected a number."),
        (
            "[tools]\nbash = {timeot = 3}\n",
            "tools.bash.timeot is not a known key; did you mean tools.bash.timeout?",
        ),
        ("[providers.a]\nbse_url = 'x'\n", "did you mean providers.a.base_url?"),
        ("[limits]\nsteps = '5'\n", "line 2: limits.steps: expected a whole number."),
        ("[limits]\nsteps = true\n", "limits.steps: expected a whole number."),
        ("[limits]\nsteps = 0\n", "limits.steps: expected a number greater than 0."),
        ("[limits]\nusd = nan\n", "limits.usd: expected a number of at least 0."),
        ("[model]\nstop = 'x'\n", 'model.stop: expected a list, such as ["…"].'),
        ("[model]\nstop = [1]\n", "model.stop: expected a list of strings in quotes."),
        ("[model]\nstream = 'yes'\n", "model.stream: expected true or false."),
        ("[model]\nreasoning = -1\n", "model.reasoning: expected a level in quotes, or a number"),
        ("model = 'x'\n", "line 1: model: expected a table, as in [model]."),
        ("providers = 3\n", "providers: expected a table, as in [providers]."),
        ("[providers]\na = 3\n", "line 2: providers.a: expected a table, as in [providers.a]."),
        (
            "[sandbox]\nmode = 'landlok'\n",
            "line 2: sandbox.mode: 'landlok' is not one of 'auto', 'bubblewrap'",
        ),
        ("[sandbox]\nmode = 'landlok'\n", "Did you mean 'landlock'?"),
        ("[permissions]\nmode = 'yolo'\n", "permissions.mode: 'yolo' is not one of 'plan', 'ask'"),
        ("[permissions]\nmode = 'unsafe'\n", "only for one run, with --mode unsafe"),
        ("[model]\nx = 1\ny = 2\nz = 3\n", "(and 2 more problems)"),
        ("[model\n", "line 1: this is not TOML:"),
        ("a = 1\na = 2\n", "line 2: this is not TOML:"),
    ],
)
def test_a_wrong_file_is_named_with_line_key_and_what_is_expected(
    place: Place, text: str, message: str
) -> None:
    file = place.user(text)
    with pytest.raises(ConfigurationError) as caught:
        place.load()
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_message_does_not_repeat_a_value_that_may_be_a_key(place: Place) -> None:
    place.user("[providers.x]\napi_key = 'sk-very-secret'\n")
    with pytest.raises(ConfigurationError, match=r"providers\.x\.api_key is not a known key") as caught:
        place.load()
    assert "sk-very" not in str(caught.value)


def test_a_file_that_is_not_utf8_names_its_line(place: Place) -> None:
    place.user("")
    place.paths.user_config.write_bytes(b"[model]\nname = '\xff'\n")
    with pytest.raises(ConfigurationError, match="line 2: this is not UTF-8"):
        place.load()


def test_a_byte_order_mark_is_welcome(place: Place) -> None:
    place.user("\ufeff[model]\nname = 'x/y'\n")
    assert place.load().config.model.name == "x/y"


def test_a_missing_config_file_of_the_flag_is_one_sentence(place: Place) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read: no such file"):
        place.load(config_file=place.home / "none.toml")


def test_folders_pipes_huge_files_and_broken_links_are_refused_at_once(place: Place, tmp_path: Path) -> None:
    file = place.paths.user_config
    file.mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="not a regular file"):
        place.load()
    file.rmdir()
    os.mkfifo(file)
    with pytest.raises(ConfigurationError, match="not a regular file"):
        place.load()
    file.unlink()
    file.symlink_to(tmp_path / "nothing")
    with pytest.raises(ConfigurationError, match="a link to nothing"):
        place.load()
    file.unlink()
    file.write_text("#" * 1_000_001)
    with pytest.raises(ConfigurationError, match="larger than 1,000,000 bytes"):
        place.load()


def test_a_project_config_that_links_out_of_the_project_is_refused(place: Place) -> None:
    outside = place.write(place.home / "outside.toml", "[limits]\nsteps = 3\n")
    (place.root / ".aar").mkdir()
    (place.root / ".aar/config.toml").symlink_to(outside)
    with pytest.raises(ConfigurationError, match="leads out of the project"):
        place.load()


def test_an_unknown_profile_tells_which_there_are(place: Place) -> None:
    place.user("[profiles.fast.model]\nretries = 1\n[profiles.slow]\n")
    assert place.load().config.model.retries == 5
    with pytest.raises(ConfigurationError, match=r"no profile 'fsat' in the config; there are: fast, slow\."):
        place.load(profile="fsat")
    place.user("")
    with pytest.raises(ConfigurationError, match="there are none"):
        place.load(profile="fast")


def test_a_wrong_key_in_a_profile_names_the_line_in_the_profile(place: Place) -> None:
    place.user("[model]\nname = 'a/b'\n[profiles.p.model]\nnmae = 'x'\n")
    with pytest.raises(ConfigurationError, match=r"line 4: model\.nmae is not a known key"):
        place.load(profile="p")


def test_variables_are_taken_for_toml_and_else_for_text(place: Place) -> None:
    place.user("[providers.My-Server]\nbase_url = 'http://a'\n[mcp.servers.git_hub]\ncommand = 'x'\n")
    config = place.load(
        environ={
            "AAR_MODEL__NAME": "42",
            "AAR_MODEL__STREAM": "false",
            "AAR_MODEL__STOP": '["a", "b"]',
            "AAR_MODEL__SMALL": "2026-01-01",
            "AAR_LIMITS__USD": "1.5",
            "AAR_LIMITS__SECONDS": "",
            "AAR_PROVIDERS__OPENAI_COMPATIBLE__BASE_URL": "http://b",
            "AAR_PROVIDERS__MY_SERVER__API_KEY_ENV": "KEY",
            "AAR_PROVIDERS__MY_SERVER__HEADERS__X_TEAM": "t",
            "AAR_MCP__SERVERS__GIT_HUB__ENV__TOKEN": "s",
            "AAR_TOOLS__WEB_FETCH__TIMEOUT": "9",
            "AAR_DEBUG": "1",
        }
    ).config
    assert (config.model.name, config.model.stream, config.model.stop) == ("42", False, ("a", "b"))
    assert config.model.small == "2026-01-01"
    assert (config.limits.usd, config.limits.seconds) == (1.5, 0)
    assert set(config.providers) == {"My-Server", "openai-compatible"}
    assert config.providers["My-Server"].headers == {"x-team": "t"}
    assert config.providers["My-Server"].api_key_env == "KEY"
    assert config.mcp.servers["git_hub"].env == {"TOKEN": "s"}
    assert config.tools.timeout("web_fetch", 1) == 9


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"AAR_MODEL__NMAE": "x"},
            "variable AAR_MODEL__NMAE: model.nmae is not a known key; did you mean model.name",
        ),
        ({"AAR_LIMITS__STEPS": "many"}, "variable AAR_LIMITS__STEPS: limits.steps: expected a whole number."),
        ({"AAR_SANDBOX__MODE": "landlok"}, "AAR_SANDBOX__MODE: sandbox.mode: 'landlok' is not one of"),
        (
            {"AAR_PERMISSIONS__MODE": "unsafe"},
            "AAR_PERMISSIONS__MODE: permissions.mode: unsafe can be given only",
        ),
        ({"AAR_MODEL__NAME__X": "y"}, "AAR_MODEL__NAME__X"),
    ],
)
def test_a_wrong_variable_is_named(place: Place, environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        place.load(environ=environ)
    assert message in str(caught.value)


def test_a_variable_with_bytes_that_are_no_text_does_not_break_loading(place: Place) -> None:
    assert place.load(environ={"AAR_MODEL__NAME": "a/\udcff"}).config.model.name == "a/\ufffd"


def test_set_takes_dotted_and_quoted_keys_and_text_with_equals_signs(place: Place) -> None:
    config = place.load(
        sets=[
            'providers."a.b".base_url=http://h/?x=1',
            "model.name = x/y",
            "permissions.mode=unsafe",
            "limits.steps=3",
        ],
        flags={"limits.steps": 9, "model.fallback": ("a/b",)},
    ).config
    assert config.providers["a.b"].base_url == "http://h/?x=1"
    assert (config.model.name, config.model.fallback) == ("x/y", ("a/b",))
    assert config.permissions.mode == "unsafe"
    assert config.limits.steps == 3


@pytest.mark.parametrize("item", ["model.retries", "=3", "a b=3", ""])
def test_a_set_without_key_or_value_is_a_usage_error(place: Place, item: str) -> None:
    with pytest.raises(UsageError, match="is not KEY=VALUE"):
        place.load(sets=[item])


def test_a_wrong_set_is_named(place: Place) -> None:
    with pytest.raises(ConfigurationError, match=r"--set limits\.stepz: limits\.stepz is not a known key"):
        place.load(sets=["limits.stepz=1"])


def test_all_problems_of_a_file_are_told_when_it_is_validated(place: Place) -> None:
    file = place.user("[model]\nx = 1\n[limits]\nsteps = 0\n[profiles.p.model]\nretries = 'a'\n")
    found = validate_file(file)
    assert [text.removeprefix(f"{file}, ").split(":")[0] for text in found] == ["line 2", "line 4", "line 6"]
    assert validate_file(place.user("[model]\nretries = 2\n")) == []


def test_one_setting_is_found_by_its_dotted_key(place: Place) -> None:
    place.user("[tools.bash]\ntimeout = 4\n[providers.x]\nbase_url = 'u'\n")
    config = place.load().config
    assert setting(config, "tools.bash.timeout") == 4
    assert setting(config, "providers.x.base_url") == "u"
    assert setting(config, "model.retries") == 5
    with pytest.raises(ConfigurationError, match=r"did you mean model\.retries"):
        setting(config, "model.retrys")
