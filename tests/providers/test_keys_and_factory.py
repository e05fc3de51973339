"""Which key goes where, which provider a name means, and what is known about models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import Config
from aar.protocol.errors import ConfigurationError
from aar.providers.catalog import is_small, lookup, pick_installed
from aar.providers.factory import choose_model, make_provider, parse_model
from aar.providers.keys import find_key
from aar.providers.openai_compatible import OpenAICompatibleProvider

KEYS = {
    "OPENAI_API_KEY": "sk-openai",
    "OPENROUTER_API_KEY": "sk-router",
    "ANTHROPIC_API_KEY": "sk-ant",
    "MINE": "sk-mine",
}


def config(**tables: Any) -> Config:
    return Config.model_validate(tables)


def key(provider: str, host: str, settings: Config | None = None, **more: Any) -> str | None:
    found = find_key(provider, host, settings or Config(), environ=KEYS, **more)
    return found.get_secret_value() if found else None


@pytest.mark.parametrize(
    ("provider", "host", "expected"),
    [
        ("openai", "api.openai.com", "sk-openai"),
        ("openai", "eu.api.openai.com", "sk-openai"),
        ("openai", "127.0.0.1", "sk-openai"),
        ("openai", "evil.com", None),
        ("openai", "api.openai.com.evil.com", None),
        ("openai", "evilapi.openai.com", None),
        ("openai-compatible", "api.openai.com", "sk-openai"),
        ("generic", "openrouter.ai", "sk-router"),
        ("openai-compatible", "localhost", "sk-openai"),
        ("openai-compatible", "llm.example.org", None),
        ("openrouter", "openrouter.ai", "sk-router"),
        ("openrouter", "api.openai.com", None),
        ("vllm", "127.0.0.1", None),
        ("ollama", "127.0.0.1", None),
    ],
)
def test_a_vendors_key_goes_to_the_vendor_and_to_this_machine_only(
    provider: str, host: str, expected: str | None
):
    assert key(provider, host) == expected


def test_a_key_that_the_user_names_goes_where_the_user_says():
    named = config(providers={"openai": {"api_key_env": "MINE"}, "generic": {"api_key_env": "MINE"}})
    assert key("openai", "proxy.example.org", named) == "sk-mine"
    assert key("openai-compatible", "proxy.example.org", named) == "sk-mine"
    missing = config(providers={"openai": {"api_key_env": "ABSENT"}})
    with pytest.raises(ConfigurationError, match="ABSENT"):
        key("openai", "api.openai.com", missing)
    assert key("openai", "127.0.0.1", missing) is None


def test_a_command_gives_the_key_for_the_configured_host_only():
    told = config(
        providers={"openai": {"api_key_command": "pass show k", "base_url": "https://own.example.org/v1"}}
    )
    assert (
        key("openai", "own.example.org", told, run_command=lambda command: f"{command}!\n") == "pass show k!"
    )
    assert key("openai", "evil.com", told, run_command=lambda command: "x") is None
    with pytest.raises(ConfigurationError, match="one line"):
        key("openai", "own.example.org", told, run_command=lambda command: "")
    with pytest.raises(ConfigurationError, match="api_key_env"):
        key("openai", "own.example.org", told)


def make(name: str, settings: Config | None = None, **more: Any) -> Any:
    return make_provider(
        name, settings or Config(), data_dir=Path("."), runtime_dir=Path("."), **{"environ": KEYS, **more}
    )


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("openai/gpt-5", "api.openai.com"),
        ("ollama/qwen3", "127.0.0.1"),
        ("openrouter/z-ai/glm-5", "openrouter.ai"),
        ("x-ai/grok-4", "api.x.ai"),
        ("llama.cpp/any", "127.0.0.1"),
        ("lm-studio/any", "127.0.0.1"),
    ],
)
def test_names_lead_to_servers(name: str, host: str):
    provider = make(name)
    assert isinstance(provider, OpenAICompatibleProvider)
    assert provider.server.partition(":")[0] == host


def test_the_embedded_model_is_made_without_being_started():
    settings = config(providers={"local": {"context_window": 4096}})
    provider = make("local", settings)
    assert provider.name == "local"
    assert provider.capabilities("qwen2.5-coder-1.5b").context_window == 4096


def test_a_moved_address_leaves_the_key_at_home():
    moved = make("openai/gpt-5", base_url="https://evil.example.org/v1")
    assert moved._endpoint.key is None
    assert make("openai/gpt-5")._endpoint.key.get_secret_value() == "sk-openai"
    assert "sk-openai" not in repr(make("openai/gpt-5")._endpoint)


def test_a_server_of_the_users_own_needs_only_an_address():
    own = config(providers={"box": {"base_url": "http://box.example.org/v1"}})
    assert make("box/m", own)._server == "box.example.org"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("opanai/gpt-5", "Did you mean openai"),
        ("gpt-5", "provider/model"),
        ("openai/", "provider/model"),
        ("openai-compatible/m", "--base-url"),
        ("scripted/no/such.json", "cannot be read"),
    ],
)
def test_names_that_lead_nowhere_say_what_to_do(name: str, words: str):
    with pytest.raises(ConfigurationError, match=words):
        make(name)


def test_a_name_is_split_at_its_first_slash_and_a_vendor_alone_has_a_default():
    assert parse_model("OpenRouter/a/b:free") == ("openrouter", "a/b:free")
    assert parse_model("scripted//tmp/x.json") == ("scripted", "/tmp/x.json")
    assert parse_model("generic/m") == ("openai-compatible", "m")
    assert parse_model("local") == ("local", "qwen2.5-coder-1.5b")


def choose(environ: dict[str, str], *, ollama: bool = False, local: bool = False, **more: Any) -> str:
    return choose_model(config(**more.pop("config", {})), environ, lambda: ollama, lambda: local, **more).name


def test_without_a_configured_model_keys_come_first_then_ollama_then_the_embedded_model():
    key_set = {"OPENAI_API_KEY": "k"}
    assert choose(key_set, ollama=True, local=True, config={"model": {"name": "a/b"}}) == "a/b"
    assert choose(key_set, ollama=True, local=True).startswith("openai/")
    assert choose({"ANTHROPIC_API_KEY": "k", **key_set}, ollama=True).startswith("anthropic/")
    assert (
        choose({}, ollama=True, ollama_models=lambda: ["nomic-embed-text", "gemma2:9b", "qwen3:8b"])
        == "ollama/qwen3:8b"
    )
    assert choose({}, ollama=True, local=True, ollama_models=list) == "local/qwen2.5-coder-1.5b"
    assert choose({"OPENAI_API_KEY": " "}, local=True) == "local/qwen2.5-coder-1.5b"
    with pytest.raises(ConfigurationError, match=r"OPENAI_API_KEY.*Ollama.*\[local\]"):
        choose({})


@pytest.mark.parametrize(
    ("provider", "model", "dialect"),
    [
        ("local", "qwen2.5-coder-1.5b", "files"),
        ("ollama", "qwen2.5-coder:3b", "files"),
        ("ollama", "gemma3:270m", "files"),
        ("ollama", "llama3.2", "files"),
        ("ollama", "qwen3:30b-a3b", "native"),
        ("ollama", "codellama:13b", "text"),
        ("ollama", "gemma2:9b", "text"),
        ("openai", "gpt-4.1-nano", "native"),
        ("openai-compatible", "anything", "native"),
    ],
)
def test_how_a_model_acts_is_known_from_its_name(provider: str, model: str, dialect: str):
    known = lookup(provider, model, Config())
    assert known.dialect == dialect
    assert known.tools == (dialect == "native")
    assert (known.price is None) == (provider not in ("local", "ollama"))


def test_the_users_settings_win_over_the_catalogue():
    told = config(model={"dialect": "native", "context_window": 9000})
    known = lookup("local", "qwen2.5-coder-1.5b", told)
    assert (known.dialect, known.context_window, known.compact_prompt) == ("native", 9000, True)
    allotted = config(providers={"ollama": {"context_window": 5000}})
    assert lookup("ollama", "qwen3", allotted).context_window == 5000
    assert not is_small("mistral-7b-v0.3")
    assert pick_installed([]) is None


def test_making_a_provider_imports_nothing_heavy():
    code = (
        "import sys; from pathlib import Path; from aar.config.schema import Config;"
        "from aar.providers.factory import make_provider as m;"
        "m('openai-compatible/x', Config(), data_dir=Path(), runtime_dir=Path(), base_url='http://127.0.0.1:1/v1');"
        "heavy = {'httpx2', 'openai', 'anthropic', 'tomlkit', 'tree_sitter', 'xllamacpp'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
