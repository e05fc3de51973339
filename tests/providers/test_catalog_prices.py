"""What models cost: the data, what is kept of them, the sums, and what the user says."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from genai_prices import Usage as TheirUsage
from genai_prices import calc_price
from hypothesis import given
from hypothesis import strategies as st

from aar.config.schema import Config
from aar.protocol.errors import ConfigurationError
from aar.protocol.usage import Price, PriceTier, Usage
from aar.providers.catalog import figures, lookup
from aar.providers.prices import FREE, ModelRecord, RecordFile, find_record, is_free, may_be_known

MODELS = [
    ("anthropic", "claude-sonnet-4-5", "anthropic"),
    ("anthropic", "claude-sonnet-4-6", "anthropic"),
    ("anthropic", "claude-opus-4-8", "anthropic"),
    ("gemini", "gemini-2.5-pro", "google"),
    ("gemini", "gemini-3.1-pro-preview", "google"),
    ("openai", "gpt-5", "openai"),
    ("openai", "gpt-5.5", "openai"),
    ("xai", "grok-4", "x-ai"),
    ("openrouter", "anthropic/claude-sonnet-4.5", "openrouter"),
]
count = st.integers(0, 400_000)


@pytest.mark.parametrize(("provider", "model", "vendor"), MODELS)
@given(fresh=count, read=count, write=count, hour=count, output=count)
def test_our_sums_are_those_of_the_data_for_every_kind_of_token_and_tier(
    provider: str, model: str, vendor: str, fresh: int, read: int, write: int, hour: int, output: int
) -> None:
    record = find_record(provider, model)
    assert record is not None
    assert record.price is not None
    if record.price.cache_write is None:  # the vendor takes nothing for it, so it is never told
        write = hour = 0
    if record.price.cache_write_1h is None:
        hour = 0
    ours = Usage(input=fresh, output=output, cache_read=read, cache_write=write + hour, cache_write_1h=hour)
    theirs = TheirUsage(
        input_tokens=ours.prompt,
        cache_read_tokens=read,
        cache_write_tokens=write + hour,
        output_tokens=output,
        **({"cache_write_1h_tokens": hour} if hour else {}),
    )
    expected = float(calc_price(theirs, model, provider_id=vendor).total_price)
    assert record.price.cost(ours) == pytest.approx(expected, abs=1e-9)


def test_a_long_prompt_is_paid_at_its_tier_as_a_whole_cached_tokens_counted() -> None:
    price = Price(
        input=1,
        output=10,
        cache_read=0.1,
        tiers=(PriceTier(above=200_000, input=2, output=20, cache_read=0.2),),
    )
    assert price.cost(Usage(input=200_000)) == pytest.approx(0.2)
    assert price.cost(Usage(input=100_000, cache_read=100_001, output=1000)) == pytest.approx(
        (100_000 * 2 + 100_001 * 0.2 + 1000 * 20) / 1e6
    )


def test_cached_tokens_without_a_rate_cost_what_the_prompt_costs() -> None:
    price = Price(input=2, output=4)
    assert price.cost(Usage(cache_read=500_000, cache_write=500_000, cache_write_1h=500_000)) == 2.0


def test_an_unknown_model_has_no_price_and_one_of_ones_own_is_free() -> None:
    assert find_record("openai", "made-up-model") is None
    assert find_record("anthropic", "claude-99") is None
    assert lookup("openai", "gpt-5", Config()).price is None
    assert lookup("local", "qwen2.5-coder-1.5b", Config()).price == FREE
    assert lookup("ollama", "qwen3", Config()).price == FREE
    assert lookup("ollama", "gpt-oss:120b-cloud", Config()).price is None
    assert not is_free("ollama", "qwen3", "https://ollama.com/v1")
    assert not is_free("openai", "gpt-5", "http://127.0.0.1:1/v1")


def test_prices_go_by_the_owner_of_the_server() -> None:
    azure = find_record("openai", "gpt-5", "https://me.openai.azure.com/openai")
    assert azure is not None
    assert azure.vendor == "Microsoft Azure"
    assert find_record("openai-compatible", "gpt-5", "https://models.example.org/v1") is None
    own = find_record("openai-compatible", "gpt-5", "https://api.openai.com/v1")
    assert own is not None
    assert own.vendor == "OpenAI"


@pytest.mark.parametrize(
    ("provider", "base_url", "expected"),
    [
        ("anthropic", None, True),
        ("openai", "http://127.0.0.1:9/v1", True),
        ("openai-compatible", "http://127.0.0.1:9/v1", False),
        ("openai-compatible", "https://api.openai.com/v1", True),
        ("lmstudio", None, False),
        ("local", None, False),
        ("scripted", None, False),
    ],
)
def test_the_data_are_not_even_asked_about_servers_that_they_cannot_know(
    provider: str, base_url: str | None, expected: bool
) -> None:
    assert may_be_known(provider, base_url) is expected


def test_a_price_that_changes_with_the_clock_is_asked_for_again() -> None:
    night = find_record("deepseek", "deepseek-chat", when=datetime(2026, 11, 22, 20, 0, tzinfo=UTC))
    day = find_record("deepseek", "deepseek-chat", when=datetime(2026, 11, 22, 12, 0, tzinfo=UTC))
    assert night is not None
    assert day is not None
    assert day.price is not None
    assert night.price is not None
    assert day.price.input > night.price.input
    assert day.until is not None


def test_what_was_found_is_kept_until_other_data_come(tmp_path: Path) -> None:
    now = [1000.0]
    file = RecordFile(tmp_path / "a" / "models.json", lambda: now[0])
    record = find_record("gemini", "gemini-2.5-pro")
    assert file.get("gemini", "gemini-2.5-pro", None) == (False, None)
    file.put("gemini", "gemini-2.5-pro", None, record)
    file.put("openai", "unheard-of", None, None)
    passing = ModelRecord("m", "V", FREE, None, until=2000.0)
    file.put("openai", "passing", "https://api.openai.com/v1", passing)
    again = RecordFile(tmp_path / "a" / "models.json", lambda: now[0])
    assert again.get("gemini", "gemini-2.5-pro", None) == (True, record)
    assert again.get("openai", "unheard-of", None) == (True, None)
    assert again.get("openai", "passing", "https://api.openai.com/v1") == (True, passing)
    now[0] = 2000.0
    assert again.get("openai", "passing", "https://api.openai.com/v1") == (False, None)
    text = (tmp_path / "a" / "models.json").read_text()
    (tmp_path / "a" / "models.json").write_text(text.replace('"stamp": "', '"stamp": "other'))
    assert again.get("gemini", "gemini-2.5-pro", None) == (False, None)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"stamp": 1}', '{"stamp": "S", "models": {"a/b": 7}}'])
def test_a_broken_file_is_passed_over(tmp_path: Path, content: str) -> None:
    path = tmp_path / "models.json"
    file = RecordFile(path)
    path.write_text(content.replace("S", file._stamp))
    assert file.get("a", "b", None) == (False, None)
    file.put("a", "b", None, None)
    assert file.get("a", "b", None) == (True, None)


def test_the_users_words_win_over_every_other_source() -> None:
    own: dict[str, Any] = {
        "context_window": 1234,
        "max_output_tokens": 99,
        "images": False,
        "tools": False,
        "reasoning": False,
        "price_input": 1,
        "price_output": 2,
        "price_cache_read": 0.5,
    }
    config = Config.model_validate({"providers": {"anthropic": {"models": {"claude-sonnet-4-6": own}}}})
    record = find_record("anthropic", "claude-sonnet-4-6")
    found = figures("anthropic", "claude-sonnet-4-6", config, record)
    shown = {name: getattr(found, name).value for name in own if hasattr(found, name)}
    assert shown == {name: own[name] for name in shown}
    assert found.price.value == Price(input=1, output=2, cache_read=0.5)
    assert {getattr(found, name).source for name in shown} == {"config"}
    assert found.dialect.value == "text"
    other = figures("anthropic", "claude-opus-4-6", config, find_record("anthropic", "claude-opus-4-6"))
    assert (other.context_window.source, other.price.source) == ("data", "data")
    half = Config.model_validate({"providers": {"openai": {"models": {"m": {"price_input": 1}}}}})
    with pytest.raises(ConfigurationError, match="price_output"):
        lookup("openai", "m", half)


def test_no_rule_hopes_for_more_than_the_data_say() -> None:
    from genai_prices.data import providers

    checked = 0
    for vendor, name in (
        ("anthropic", "anthropic"),
        ("openai", "openai"),
        ("google", "gemini"),
        ("x-ai", "xai"),
    ):
        for info in next(item for item in providers if item.id == vendor).models:
            if info.context_window is None or any(
                word in info.id
                for word in (
                    "tts",
                    "live",
                    "audio",
                    "realtime",
                    "embed",
                    "transcribe",
                    "image",
                    "computer",
                    "gemma",
                )
            ):
                continue
            window = figures(name, info.id, Config()).context_window
            checked += 1
            if window.source == "rule":
                assert window.value <= info.context_window * 1.05, (
                    info.id,
                    window.value,
                    info.context_window,
                )
    assert checked > 80


def test_the_data_are_read_without_any_network() -> None:
    program = (
        "import socket, sys\n"
        "def audit(event, args):\n"
        "    if event.startswith('socket.'): raise SystemExit('network: ' + event)\n"
        "sys.addaudithook(audit)\n"
        "from aar.providers.prices import find_record\n"
        "print(find_record('openai', 'gpt-5').price.input)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1.25\n", "")
