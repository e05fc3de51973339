"""The model for titles, summaries and routing."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.protocol.errors import ProviderError
from aar.runtime import open_base
from aar.runtime.models import make_active_model
from aar.runtime.small import SmallJobs, small_model
from tests.support.model_server import ModelServer, Reply


async def test_a_small_job_goes_to_the_small_model_and_its_cost_is_counted(tmp_path: Path) -> None:
    async with ModelServer([Reply(text=" A title ")]) as server:
        sets = [
            'model.small="mistral/small-one"',
            'model.dialect="text"',
            f'providers.mistral.base_url="{server.base_url}"',
            "providers.mistral.models.small-one.price_input=1",
            "providers.mistral.models.small-one.price_output=2",
        ]
        base = open_base(cwd=tmp_path, sets=sets, model="openai-compatible/big")
        main, _ = make_active_model(base, server.base_url)
        told: list[float | None] = []
        jobs = SmallJobs(small_model(base, main), base, lambda usage, cost: told.append(cost))
        assert jobs.active.capabilities.dialect == "native"
        assert await jobs.ask_once("Name this.", "Be short.", 20) == " A title "
        await jobs.aclose(main)
        await main.provider.aclose()
        (request,) = server.requests
    assert request.body["model"] == "small-one"
    assert request.body["max_tokens"] == 20
    assert "tools" not in request.body
    assert told == [pytest.approx((10 * 1 + 5 * 2) / 1e6)]
    assert jobs.cost_usd == pytest.approx(told[0])


async def test_without_a_small_model_the_main_one_is_asked_and_its_failure_is_told(tmp_path: Path) -> None:
    async with ModelServer([Reply(status=401)]) as server:
        base = open_base(cwd=tmp_path, model="openai-compatible/big")
        main, _ = make_active_model(base, server.base_url)
        jobs = SmallJobs(small_model(base, main), base)
        assert jobs.active is main
        with pytest.raises(ProviderError):
            await jobs.ask_once("Name this.")
        await jobs.aclose(main)
        await main.provider.aclose()
