"""Scenarios of the ancestors with the embedded model. It is slow on a busy machine: run with ``-m slow``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aar.protocol.events import Event, StreamChunk
from aar.runtime.undo import Undo
from tests.ancestry.stage import script, stage
from tests.local.conftest import model_file

__all__ = ["model_file"]

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(600)]
WRONG = {"calc.py": "def add(a, b):\n    return a - b\n"}
ADDS = "python -c 'import calc; assert calc.add(2, 3) == 5'"


def embedded(file: Path) -> tuple[str, ...]:
    """Return settings under which the worker ends with the runtime."""
    pytest.importorskip("xllamacpp", reason="the local extra is not installed")
    return (f'providers.local.model_path="{file}"', "providers.local.keep_warm=0")


async def test_the_embedded_model_finishes_what_a_failing_provider_began(
    tmp_path: Path, model_file: Path
) -> None:
    down = {"status": 503, "error": "overloaded", "headers": {"Retry-After": "0.01"}, "repeat": 9}
    sets = (
        *embedded(model_file),
        'model.fallback=["local"]',
        "model.retries=2",
        "model.max_output_tokens=16",
    )
    async with stage(tmp_path, script(tmp_path / "m.json", down), sets=sets) as here:
        async with asyncio.timeout(500):
            result = await here.agent.run("What is 2 + 2?", here.session)
        assert result.text
        assert int(result.exit_code) == 0
        [switch] = here.of("model_switch")
        assert switch.to_model == "local"
        assert len(here.of("retry")) == 1


async def test_a_wrong_function_is_mended_and_checked_before_it_is_presented(
    tmp_path: Path, model_file: Path
) -> None:
    sets = (*embedded(model_file), f'verify.commands=["{ADDS}"]')
    async with stage(tmp_path, "local", files=WRONG, sets=sets) as here:
        async with asyncio.timeout(500):
            result = await here.agent.run("add in calc.py is wrong: mend it", here.session)
        assert result.stop_reason == "verified"
        assert "a + b" in (here.root / "calc.py").read_text()


async def test_a_feature_is_built_checked_and_taken_back(tmp_path: Path, model_file: Path) -> None:
    files = {"shop.py": "def total(prices):\n    return sum(prices)\n"}
    check = 'python -c \'import greet; assert greet.greet(\\"Ada\\") == \\"Hello, Ada\\"\''
    sets = (*embedded(model_file), f'verify.commands=["{check}"]')
    async with stage(tmp_path, "local", files=files, sets=sets) as here:
        task = "Write greet.py with a function greet(name) that returns 'Hello, ' followed by the name."
        async with asyncio.timeout(500):
            result = await here.agent.run(task, here.session)
        assert result.stop_reason == "verified"
        checkpoints = here.runtime.checkpoints(here.session)
        assert checkpoints is not None
        undo = Undo(checkpoints.store, here.session)
        while (here.root / "greet.py").exists():
            await undo.undo()
        assert (here.root / "shop.py").read_text() == files["shop.py"]
        await undo.redo()
        assert "def greet" in (here.root / "greet.py").read_text()


async def test_a_cancelled_answer_ends_at_once_and_the_session_goes_on(
    tmp_path: Path, model_file: Path
) -> None:
    sets = (*embedded(model_file), f'verify.commands=["{ADDS}"]')
    async with stage(tmp_path, "local", files=WRONG, sets=sets) as here:
        begun = asyncio.Event()

        def see(event: Event) -> None:
            if isinstance(event, StreamChunk) and event.text:
                begun.set()

        stop = here.session.on_event(see)
        async with asyncio.timeout(550):
            run = asyncio.ensure_future(here.agent.run("add in calc.py is wrong: tell why", here.session))
            await begun.wait()
            here.agent.cancel()
            assert (await run).exit_code == 130
            assert (here.root / "calc.py").read_text() == WRONG["calc.py"]
            stop()
            again = await here.agent.run("add in calc.py is wrong: mend it", here.session)
        assert again.stop_reason == "verified"
        assert "a + b" in (here.root / "calc.py").read_text()
