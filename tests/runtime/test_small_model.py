"""The model for titles, summaries and routing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aar.core.verify.verifier import Evidence
from aar.protocol.errors import ProviderError
from aar.protocol.usage import Usage
from aar.runtime import open_base, open_runtime
from aar.runtime.context import budget_of
from aar.runtime.counsel import ask_small
from aar.runtime.judge import make_judge
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


def asking(server: ModelServer) -> list[str]:
    """Return settings with ``server`` as the small model and as the judge, at a price."""
    return [
        'model.small="mistral/small-one"',
        'verify.judge="mistral/judge-one"',
        f'providers.mistral.base_url="{server.base_url}"',
        *(
            f"providers.mistral.models.{name}.price_{side}=1"
            for name in ("small-one", "judge-one")
            for side in ("input", "output")
        ),
    ]


@pytest.mark.usefixtures("clean_environment")
async def test_a_question_to_the_small_model_counts_for_session_and_day(tmp_path: Path) -> None:
    scenario = tmp_path / "model.json"
    scenario.write_text(json.dumps({"steps": [{"text": "done"}]}))
    async with ModelServer([Reply(text="coder")]) as server:
        runtime = open_runtime(cwd=tmp_path, model=f"scripted/{scenario}", sets=asking(server))
        session = runtime.open_session()
        assert await ask_small(runtime, session, "Who does it?", "router") == "coder"
        spent = [line.spent for line in budget_of(runtime.base, session).lines()]
        await session.aclose()
        await runtime.aclose()
    assert spent == [pytest.approx(15 / 1e6)] * 2


@pytest.mark.usefixtures("clean_environment")
async def test_a_judge_is_opened_once_and_closed_with_the_runtime(tmp_path: Path) -> None:
    scenario = tmp_path / "model.json"
    scenario.write_text(json.dumps({"steps": [{"text": "done"}]}))
    counted: list[float | None] = []

    def count(usage: Usage, cost_usd: float | None) -> None:
        counted.append(cost_usd)

    async with ModelServer([Reply(text="PASS"), Reply(text="FAIL: no test")]) as server:
        runtime = open_runtime(cwd=tmp_path, model=f"scripted/{scenario}", sets=asking(server))
        session = runtime.open_session()
        judge = make_judge(runtime, session, count)
        assert await judge("it works", Evidence("Done.")) == (True, "")
        assert await judge("it is tested", Evidence("Done.")) == (False, "The judge says: no test")
        cost = session.totals.cost_usd
        await session.aclose()
        await runtime.aclose()
    assert [request.body["model"] for request in server.requests] == ["judge-one"] * 2
    assert server.connections == 1
    assert counted == [pytest.approx(15 / 1e6)] * 2
    assert cost == pytest.approx(30 / 1e6)
