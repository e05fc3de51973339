"""Which reasoning levels a model takes, as docs/models.md tells."""

from __future__ import annotations

import re
from pathlib import Path

from aar.providers.catalog_reasoning import LEVELS, reasoning_levels

PAGE = (Path(__file__).resolve().parents[2] / "docs/models.md").read_text(encoding="utf-8")


def test_the_page_tells_the_levels_of_each_model_that_it_names() -> None:
    table = PAGE.partition("<!-- levels:")[2].partition("<!-- end of levels -->")[0]
    rows = re.findall(r"^\| `([^/`]+)/([^`]+)` \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) == 8
    for provider, model, told in rows:
        assert " ".join(reasoning_levels(provider, model)) == ("" if told == "none" else told), model


def test_levels_rise_and_a_model_that_does_not_think_has_none() -> None:
    for model in (
        "gpt-5",
        "gpt-6-sol",
        "claude-opus-5",
        "gemini-2.5-flash",
        "grok-4",
        "qwen3-32b",
        "unheard-of",
    ):
        levels = reasoning_levels("openai-compatible", model, thinks=True)
        assert levels
        assert list(levels) == sorted(levels, key=LEVELS.index)
    assert reasoning_levels("local", "qwen3-4b") == ()
    assert reasoning_levels("openai", "gpt-5", thinks=False) == ()
