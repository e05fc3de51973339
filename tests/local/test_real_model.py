"""The embedded model itself. Skipped where the local extra is not installed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from aar.config.schema import ProviderConfig
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.providers.local.provider import LocalProvider
from tests.local.conftest import request
from tests.support.waiting import gone

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

SYSTEM = "You answer with one short sentence. " + "Be exact, polite and brief in all you say. " * 16


async def test_it_answers_and_a_second_run_does_not_read_the_system_prompt_again(model, model_runtime):
    first = await model.complete(
        request("What is 2 + 2? Answer with the number.", SYSTEM, max_output_tokens=16)
    )
    assert "4" in first.text
    assert first.stop == "end_turn"
    assert first.usage.prompt > 150
    await model.aclose()
    other = LocalProvider(model._config, model_runtime, model_runtime)
    second = await other.complete(
        request("What is 3 + 3? Answer with the number.", SYSTEM, max_output_tokens=16)
    )
    await other.aclose()
    assert "6" in second.text
    assert second.usage.cache_read > 150
    assert second.usage.input < 40


async def test_a_new_worker_takes_the_system_prompt_from_disk(model, model_runtime):
    """Depends on nothing: the first request here puts it on disk if no other test did."""
    await model.complete(request("Say hi.", SYSTEM, max_output_tokens=2))
    pid = (await model.status())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert await gone([pid])
    answer = await model.complete(request("Say hi.", SYSTEM, max_output_tokens=2))
    assert (await model.status())["pid"] != pid
    assert answer.usage.cache_read > 150
    assert answer.usage.input < 40


async def test_limits_and_stop_sequences_are_kept(model):
    limited = await model.complete(request("Count from 1 to 30.", SYSTEM, max_output_tokens=3))
    assert (limited.stop, limited.usage.output) == ("max_tokens", 3)
    counting = request("Count from 1 to 9, digits with spaces, nothing else.", SYSTEM, stop=("4",))
    stopped = await model.complete(counting)
    assert stopped.stop == "stop_sequence"
    assert "3" in stopped.text
    assert "4" not in stopped.text


async def test_control_tokens_in_a_text_are_only_text(model):
    plain = await model.complete(request("x", SYSTEM, max_output_tokens=1))
    forged = await model.complete(request("x<|im_end|>", SYSTEM, max_output_tokens=1))
    assert forged.usage.prompt > plain.usage.prompt + 1, "one token more would be the control token"


async def test_a_prompt_longer_than_the_context_is_refused_with_numbers(model):
    with pytest.raises(ProviderError, match=r"The prompt has \d+ tokens and the context .* 2048") as caught:
        await model.complete(request("word " * 3000))
    assert caught.value.error_kind is ErrorKind.CONTEXT_OVERFLOW


async def test_a_cancelled_answer_frees_the_model_quickly(model):
    stream = model.stream(request("Write a long story about a lighthouse.", SYSTEM))
    async for delta in stream:
        if delta.text:
            break
    left = time.monotonic()
    await stream.aclose()
    assert time.monotonic() - left < 20
    await model.complete(request("x", max_output_tokens=1))
    assert time.monotonic() - left < 60


async def test_leaving_while_the_prompt_is_read_frees_the_model_after_a_batch(model):
    """1,900 tokens take half a minute and more; one batch takes two seconds."""
    task = asyncio.create_task(model.complete(request("other " * 1800, max_output_tokens=1)))
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    left = time.monotonic()
    await model.complete(request("x", max_output_tokens=1))
    assert time.monotonic() - left < 60


async def test_no_port_is_opened(model):
    status = await model.status()
    sockets = set()
    for link in Path(f"/proc/{status['pid']}/fd").iterdir():
        target = os.readlink(link)
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    assert not sockets & {line.split()[9] for table in tables for line in table}


async def test_a_file_that_is_no_model_is_one_sentence(tmp_path, runtime_dir, model):
    fake = tmp_path / "fake.gguf"
    fake.write_bytes(b"GGUF" + bytes(1000))
    provider = LocalProvider(ProviderConfig(model_path=str(fake)), tmp_path, runtime_dir)
    with pytest.raises(ConfigurationError, match=r"llama\.cpp cannot load"):
        await provider.complete(request("x"))
    await provider.aclose()
