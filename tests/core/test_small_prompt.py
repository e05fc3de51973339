"""What a small model is told must stay small: it reads some 40 tokens a second."""

from __future__ import annotations

from pathlib import Path

from aar.core.prompt import build_prompt
from aar.core.tokens import estimate_text
from aar.providers.text_tools import FILES_RULES


def test_the_prompt_of_a_small_model_stays_within_500_tokens(tmp_path: Path) -> None:
    prompt = build_prompt(
        workspace=tmp_path, dialect="files", tools=(), mode="auto", compact=True, dialect_rules=FILES_RULES
    )
    assert estimate_text(prompt.text) <= 500
    again = build_prompt(
        workspace=tmp_path, dialect="files", tools=(), mode="auto", compact=True, dialect_rules=FILES_RULES
    )
    assert again.text == prompt.text
    assert again.sha256 == prompt.sha256


def test_the_whole_prompt_names_its_layers_and_rules(tmp_path: Path) -> None:
    prompt = build_prompt(
        workspace=tmp_path, dialect="native", tools=(), mode="plan", rules=[("AGENTS.md", "Use tabs.")]
    )
    assert [layer.name for layer in prompt.layers] == ["identity", "tools", "environment", "mode", "rules"]
    assert "Use tabs." in prompt.text
    assert str(tmp_path) in prompt.text
