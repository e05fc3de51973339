"""What a run costs is told, and a model that was used before needs no import of the prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import aar
from tests.cli.test_imports import imported
from tests.support.model_server import Reply, model_server

USAGE = {
    "prompt_tokens": 1_000_000,
    "completion_tokens": 1000,
    "prompt_tokens_details": {"cached_tokens": 400_000},
}


def test_the_cost_counts_cached_tokens_and_is_unknown_for_an_unknown_model(project: Path) -> None:
    with model_server([Reply(text="Hello.", usage=USAGE)]) as server:
        costs: list[float | None] = []
        for model in ("xai/grok-4", "xai/made-up", "openai-compatible/m"):
            args = ["--model", model, "--base-url", server.base_url, "--output", "json"]
            costs.append(aar("run", *args, "hi", cwd=project).json["cost_usd"])
    from aar.providers.prices import find_record

    record = find_record("xai", "grok-4")
    assert record is not None
    assert record.price is not None
    price = record.price
    assert price.cache_read is not None
    expected = (600_000 * price.input + 400_000 * price.cache_read + 1000 * price.output) / 1e6
    assert costs == [pytest.approx(expected), None, None]


def test_a_model_that_was_used_before_is_priced_without_the_import(project: Path) -> None:
    with model_server([Reply(text="Hello.")]) as server:
        args = ["run", "-q", "--model", "xai/grok-4", "--base-url", server.base_url, "hi"]
        first = imported(*args, cwd=project)
        second = imported(*args, cwd=project)
    assert "genai_prices" in first
    assert "genai_prices" not in second
