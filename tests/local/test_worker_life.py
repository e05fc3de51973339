"""The worker's life, with an engine that needs no weights."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from aar.config.schema import ProviderConfig
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.providers.base import ProviderRequest
from aar.providers.local.provider import LocalProvider
from tests.local.conftest import FAKE_ENGINE, request
from tests.support.waiting import gone, until


def told(folder: Path, name: str) -> Path:
    """Return the file in which the engine tells something."""
    return folder / "models" / "prefixes" / name


def starts(folder: Path) -> int:
    return len(told(folder, "starts").read_text().splitlines())


async def test_an_answer_streams_and_ends_with_its_usage(fake):
    deltas = [delta async for delta in fake.stream(request("count 3"))]
    assert "".join(delta.text for delta in deltas) == "0 1 2 "
    response = deltas[-1].response
    assert response is not None
    assert response.text == "0 1 2 "
    assert (response.stop, response.stop_raw) == ("max_tokens", "length")
    assert (response.usage.input, response.usage.cache_read, response.usage.output) == (3, 5, 3)


async def test_the_first_request_tells_that_a_model_starts_and_whose_hash_is_unknown(fake):
    progress = [delta.progress async for delta in fake.stream(request("say hi")) if delta.progress]
    assert any("its hash is not known" in line for line in progress)
    assert "starting the embedded model" in progress
    again = [delta.progress async for delta in fake.stream(request("say hi")) if delta.progress]
    assert again == []


async def test_a_second_run_finds_the_first_ones_worker(fake, fake_config, tmp_path, runtime_dir):
    await fake.complete(request("say one"))
    first = (await fake.status())["pid"]
    await fake.aclose()
    other = LocalProvider(fake_config, tmp_path, runtime_dir, engine=FAKE_ENGINE)
    assert (await other.complete(request("say two"))).text == "two"
    assert (await other.status())["pid"] == first
    await other.aclose()
    assert starts(tmp_path) == 1


async def test_two_runs_that_start_at_once_share_one_worker(fake, fake_config, tmp_path, runtime_dir):
    other = LocalProvider(fake_config, tmp_path, runtime_dir, engine=FAKE_ENGINE)
    answers = await asyncio.gather(fake.complete(request("say a")), other.complete(request("say b")))
    assert [answer.text for answer in answers] == ["a", "b"]
    await other.aclose()
    assert starts(tmp_path) == 1


async def test_a_second_request_waits_for_the_first_and_says_so(fake, tmp_path):
    first = asyncio.create_task(fake.complete(request("hold")))
    await until(lambda: told(tmp_path, "begun").exists())
    progress: list[str] = []
    async for delta in fake.stream(request("say second")):
        if delta.progress:
            progress.append(delta.progress)
            told(tmp_path, "go").touch()
        answer = delta.response
    assert progress == ["waiting for another request to the model"]
    assert answer.text == "second"
    assert (await first).usage.output == 1


async def test_leaving_a_stream_stops_the_engine_at_once(fake, tmp_path):
    stream = fake.stream(request("count 10000"))
    async for delta in stream:
        if delta.text.startswith("2"):
            break
    left = time.time()
    await stream.aclose()
    assert (await fake.complete(request("say next"))).text == "next"
    stopped = float(told(tmp_path, "cancelled").read_text())
    assert stopped - left < 60, "to count on takes 200 s"
    assert starts(tmp_path) == 1


async def test_cancelling_the_task_stops_the_engine(fake, tmp_path):
    task = asyncio.create_task(fake.complete(request("count 10000")))
    await until(lambda: told(tmp_path, "begun").exists())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await fake.complete(request("say next"))).text == "next"
    assert told(tmp_path, "cancelled").exists()


async def test_a_client_that_dies_stops_the_engine(fake, fake_config, tmp_path, runtime_dir):
    await fake.complete(request("say warm"))
    path = next(runtime_dir.glob("w-*.sock"))
    _, writer = await asyncio.open_unix_connection(str(path))
    writer.write(
        b'{"op":"complete","id":1,"keep_warm":60,"messages":[{"role":"user","content":"count 10000"}]}\n'
    )
    await until(lambda: told(tmp_path, "begun").exists())
    writer.close()
    await writer.wait_closed()
    assert (await asyncio.wait_for(fake.complete(request("say next")), 60)).text == "next"
    assert told(tmp_path, "cancelled").exists()


async def test_a_worker_killed_in_an_answer_is_a_retryable_error_and_the_next_request_starts_another(
    fake, tmp_path
):
    await fake.complete(request("say warm"))
    pid = (await fake.status())["pid"]
    stream = fake.stream(request("count 10000"))
    async for delta in stream:
        if delta.text:
            break
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ProviderError) as caught:
        async for _ in stream:
            pass
    assert caught.value.error_kind is ErrorKind.INCOMPLETE_STREAM
    assert caught.value.retryable
    assert (await fake.complete(request("say again"))).text == "again"
    assert starts(tmp_path) == 2


async def test_a_worker_that_died_while_idle_is_replaced_without_an_error(fake, tmp_path):
    await fake.complete(request("say warm"))
    pid = (await fake.status())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert await gone([pid])
    assert (await fake.complete(request("say again"))).text == "again"
    assert starts(tmp_path) == 2


async def test_answers_one_after_the_other_use_one_connection_that_aclose_closes(fake):
    for number in range(3):
        assert (await fake.complete(request(f"say {number}"))).text == str(number)
        assert len(fake._idle) == 1
    kept = fake._idle[0]
    await fake.aclose()
    assert not kept.usable


async def test_keep_warm_zero_ends_the_worker_when_the_client_hangs_up(weights_file, tmp_path, runtime_dir):
    config = ProviderConfig(model_path=str(weights_file), keep_warm=0)
    provider = LocalProvider(config, tmp_path, runtime_dir, engine=FAKE_ENGINE)
    await provider.complete(request("say one"))
    await provider.complete(request("say two"))
    pid = (await provider.status())["pid"]
    assert starts(tmp_path) == 1
    await provider.aclose()
    assert await gone([pid])
    assert list(runtime_dir.glob("*.sock")) == []


async def test_an_idle_worker_ends_after_keep_warm_seconds(weights_file, tmp_path, runtime_dir):
    config = ProviderConfig(model_path=str(weights_file), keep_warm=0.3)
    provider = LocalProvider(config, tmp_path, runtime_dir, engine=FAKE_ENGINE)
    await provider.complete(request("say one"))
    assert await gone([int(told(tmp_path, "starts").read_text())])
    assert (await provider.complete(request("say two"))).text == "two"
    assert starts(tmp_path) == 2
    await provider.aclose()


async def test_other_settings_get_another_worker_and_the_old_one_retires(
    fake, weights_file, tmp_path, runtime_dir
):
    await fake.complete(request("say one"))
    old = (await fake.status())["pid"]
    await fake.aclose()
    config = ProviderConfig(model_path=str(weights_file), keep_warm=60, context_window=4096)
    other = LocalProvider(config, tmp_path, runtime_dir, engine=FAKE_ENGINE)
    await other.complete(request("say two"))
    assert (await other.status())["pid"] != old
    assert await gone([old])
    await other.aclose()


async def test_a_stale_socket_is_replaced(fake, runtime_dir):
    await fake.complete(request("say one"))
    path = next(runtime_dir.glob("w-*.sock"))
    pid = (await fake.status())["pid"]
    await fake.aclose()
    os.kill(pid, signal.SIGKILL)
    assert await gone([pid])
    assert path.exists()
    assert (await fake.complete(request("say two"))).text == "two"


async def test_errors_of_the_engine_keep_their_kind_and_the_worker_goes_on(fake):
    with pytest.raises(ProviderError, match="9 tokens") as caught:
        await fake.complete(request("refuse"))
    assert caught.value.error_kind is ErrorKind.CONTEXT_OVERFLOW
    assert (await fake.complete(request("say fine"))).text == "fine"


async def test_an_engine_that_cannot_load_is_one_sentence(tmp_path, runtime_dir):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    config = ProviderConfig(model_path=str(broken))
    provider = LocalProvider(config, tmp_path, runtime_dir, engine=FAKE_ENGINE)
    with pytest.raises(ProviderError, match="this file is broken"):
        await provider.complete(request("say one"))
    await provider.aclose()


async def test_the_worker_has_no_keys_and_is_nobodys_child(fake, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-secret")
    pid = (await fake.status())["pid"]
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"a-secret" not in environment
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert os.getsid(pid) == pid


async def test_a_runtime_folder_open_to_others_is_refused(fake_config, tmp_path, runtime_dir):
    runtime_dir.chmod(0o755)
    provider = LocalProvider(fake_config, tmp_path, runtime_dir, engine=FAKE_ENGINE)
    with pytest.raises(ConfigurationError, match="yours alone"):
        await provider.complete(request("say one"))


async def test_an_unknown_model_is_named_with_the_known_one(tmp_path, runtime_dir):
    provider = LocalProvider(None, tmp_path, runtime_dir)
    with pytest.raises(ProviderError, match=r"local/qwen2\.5-coder-1\.5b") as caught:
        await provider.complete(ProviderRequest("gpt-9", "", []))
    assert caught.value.error_kind is ErrorKind.UNKNOWN_MODEL


def test_its_capabilities_ask_for_whole_files_and_cost_nothing(tmp_path):
    provider = LocalProvider(ProviderConfig(context_window=4096), tmp_path, tmp_path)
    capabilities = provider.capabilities("qwen2.5-coder-1.5b")
    assert (capabilities.context_window, capabilities.dialect) == (4096, "files")
    assert capabilities.compact_prompt
    assert not capabilities.tools
    assert capabilities.price.input == capabilities.price.output == 0
