"""What is told about reasoning levels is what requests carry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aar.providers.base import ProviderRequest
from aar.providers.catalog_reasoning import reasoning_levels
from aar.providers.chat_completions.encode import RequestEncoder, WireOptions
from aar.providers.presets import PRESETS
from aar.providers.reasoning_wire import reasoning_fields, reasoning_map


@pytest.mark.parametrize(
    ("model", "level", "told"),
    [
        ("anthropic/claude-sonnet-4-6", "high", {"output_config": {"effort": "high"}}),
        ("anthropic/claude-sonnet-4-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 4000}}),
        ("openai/gpt-5", "minimal", {"reasoning": {"effort": "minimal"}}),
        ("gemini/gemini-2.5-flash", "off", {"thinkingConfig": {"thinkingBudget": 0}}),
        ("ollama/gpt-oss:20b", "max", {"think": "high"}),
        ("ollama/qwen3:8b", "low", {"think": True}),
        ("openrouter/x", "max", {"reasoning": {"effort": "xhigh"}}),
        ("moonshot/kimi-k2", "off", {"thinking": {"type": "disabled"}}),
        ("local/qwen2.5-coder-1.5b", "high", {}),
    ],
)
def test_each_vendor_is_asked_in_its_own_words(model: str, level: str, told: dict[str, Any]) -> None:
    provider, _, name = model.partition("/")
    fields = reasoning_fields(provider, name, level)
    if not told:
        assert fields == {}
    for key, value in told.items():
        assert fields[key] == value or value.items() <= fields[key].items()


@pytest.mark.parametrize(
    "provider", [name for name, preset in PRESETS.items() if preset.kind == "chat" and name != "openai"]
)
def test_a_chat_request_carries_what_is_told(provider: str) -> None:
    preset = PRESETS[provider]
    options = WireOptions("h", reasoning=preset.reasoning, top_effort=preset.top_effort)
    for level in ("off", "low", "max"):
        request = ProviderRequest(model="m", system="", messages=(), reasoning=level)
        encoded = RequestEncoder(options).encode(request, stream=True)
        body = json.loads(encoded.body)
        for key, value in reasoning_fields(provider, "m", level).items():
            assert body[key] == value


def test_the_map_has_every_level_that_makes_a_difference() -> None:
    assert list(reasoning_map("openai", "gpt-5")) == list(reasoning_levels("openai", "gpt-5"))
    assert reasoning_map("openai", "gpt-4.1") == {}
