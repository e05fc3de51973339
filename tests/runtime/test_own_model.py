"""A stored session goes on with its own model, at the address that was named for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aar.core.session import Session
from aar.protocol.errors import ConfigurationError
from aar.protocol.events import Notice
from aar.runtime import Runtime, open_runtime
from aar.runtime.work_trees import runtime_in
from tests.support.model_server import ModelServer, Reply

HERE = "http://127.0.0.1:9/v1"
PROXY = "https://models.example.org/v1"


@pytest.fixture(autouse=True)
def usual(clean_environment: Path) -> Path:
    """Return the user's settings, in which another model is the usual one."""
    file = clean_environment / "aar" / "config" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[model]\nname = "mistral/usual"\n')
    return file


@asynccontextmanager
async def opened(
    folder: Path, session_id: str | None = None, **options: Any
) -> AsyncIterator[tuple[Runtime, Session]]:
    which = {"session_id": session_id}
    runtime = open_runtime(cwd=folder, goes_on=which, **options)
    try:
        session = runtime.open_session(**which)
        try:
            yield runtime, session
        finally:
            await session.aclose()
    finally:
        await runtime.aclose()


async def begun(folder: Path, **options: Any) -> str:
    async with opened(folder, **options) as (_, session):
        return session.session_id


async def test_a_resumed_session_asks_the_server_that_was_named_for_it(tmp_path: Path) -> None:
    async with ModelServer([Reply(text="One."), Reply(text="Two.")]) as server:
        given = {"model": "openai-compatible/m", "base_url": server.base_url}
        async with opened(tmp_path, **given) as (runtime, session):
            await runtime.agent(session).run("Begin.", session)
        async with opened(tmp_path, session.session_id) as (runtime, again):
            result = await runtime.agent(again).run("Go on.", again)
    assert (result.text, len(server.requests)) == ("Two.", 2)


@pytest.mark.parametrize(
    ("start", "name", "address"),
    [
        ({}, "openai/gpt-a", PROXY),
        ({"model": "openai/gpt-a"}, "openai/gpt-a", PROXY),
        ({"model": "openai/gpt-b"}, "openai/gpt-b", PROXY),
        ({"base_url": HERE}, "openai/gpt-a", HERE),
        ({"model": "mistral/m"}, "mistral/m", None),
        ({"model": "openai-compatible/m", "base_url": HERE}, "openai-compatible/m", HERE),
    ],
)
async def test_an_address_stays_with_its_provider_until_a_start_names_another(
    tmp_path: Path, start: dict[str, str], name: str, address: str | None
) -> None:
    own = await begun(tmp_path, model="openai/gpt-a", base_url=PROXY)
    async with opened(tmp_path, own, **start) as (runtime, _):
        assert (runtime.active.name, runtime.active.base_url) == (name, address)
        told = [text for text in runtime.notices if "as this session did before" in text]
        assert bool(told) == (address == PROXY)
    async with opened(tmp_path, own) as (runtime, session):
        assert (runtime.active.name, runtime.active.base_url) == (name, address)
        assert (session.totals.chosen_model, session.totals.base_url) == (name, address)


async def test_a_session_goes_on_where_the_usual_settings_give_no_model(tmp_path: Path, usual: Path) -> None:
    own = await begun(tmp_path, model="openai-compatible/m", base_url=HERE)
    usual.write_text('[model]\nname = "openai-compatible/nowhere"\n')
    async with opened(tmp_path, own) as (runtime, _):
        assert (runtime.active.name, runtime.active.base_url) == ("openai-compatible/m", HERE)
    with pytest.raises(ConfigurationError, match="--base-url"):
        open_runtime(cwd=tmp_path)


async def test_no_key_is_kept_and_commands_do_not_reach_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await begun(tmp_path, model="openai/gpt-a", base_url=PROXY)
    async with opened(tmp_path, own) as (runtime, _):
        runtime.allow_domain("models.example.org")
        blocked = runtime.spawner.egress.domains.judge("models.example.org", 443)
        assert blocked is not None
        assert "host of a model" in blocked.reason
    monkeypatch.setenv("GATEWAY_API_KEY", "t0p-s3cret-word")
    own = await begun(tmp_path, model="openai/gpt-a", base_url=f"{PROXY}/t0p-s3cret-word")
    async with opened(tmp_path, own) as (runtime, session):
        assert "t0p-s3cret-word" not in "".join(event.to_json() for event in session.events())
        assert runtime.active.name == "mistral/usual"
        (notice,) = [event for event in runtime.opening_notices(session) if isinstance(event, Notice)]
        assert "held a key" in notice.message


async def test_models_of_the_provider_and_work_trees_keep_to_the_server(tmp_path: Path) -> None:
    project, tree = tmp_path / "project", tmp_path / "tree"
    project.mkdir()
    tree.mkdir()
    async with opened(project, model="openai-compatible/m", base_url=HERE) as (runtime, _):
        runtime.set_model("openai-compatible/other")
        assert runtime.active.base_url == HERE
        async with runtime_in(runtime, tree) as inner:
            assert inner.active is runtime.active
            assert inner.base_url == HERE
        runtime.set_model("mistral/usual")
        assert runtime.active.base_url is None
