"""Measure the embedded model: python -m tests.benchmarks.local_model [file.gguf].

Everything goes through the provider and its worker, as in a run. Close other programs first: the numbers
fall to a tenth beside a busy machine.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aar.config.schema import ProviderConfig
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import ProviderRequest, ProviderResponse
from aar.providers.local.provider import LocalProvider, usable_cores
from aar.providers.local.worker import __file__ as worker_file

SYSTEM = "You are a careful coding assistant. Answer with whole files. " * 25
SOURCE = "\n\n".join(Path(worker_file).read_text(encoding="utf-8").split("\n\n")[14:30])
REWRITE = (
    f"worker.py\n```python\n{SOURCE}\n```\nRename `_failure` to `_broken` everywhere in this file. "
    "Answer with the complete new file in one fenced block."
)
STORY = "Tell in 120 words how a compiler works."


def _request(text: str, **fields) -> ProviderRequest:
    message = Message(role="user", content=(TextBlock(text=text),))
    return ProviderRequest("qwen2.5-coder-1.5b", SYSTEM, [message], **fields)


@asynccontextmanager
async def _provider(config: ProviderConfig, folder: Path) -> AsyncIterator[LocalProvider]:
    provider = LocalProvider(config, folder, folder / "run")
    try:
        yield provider
    finally:
        await provider.aclose()


async def _ask(provider: LocalProvider, label: str, request: ProviderRequest) -> ProviderResponse:
    began = time.perf_counter()
    first = None
    async for delta in provider.stream(request):
        if delta.text and first is None:
            first = time.perf_counter()
        if delta.response is not None:
            ended = time.perf_counter()
            usage = delta.response.usage
            assert usage is not None
            assert first is not None
            rate = usage.output / max(ended - first, 1e-9)
            print(
                f"{label:<34} first token {first - began:6.2f} s, whole {ended - began:6.2f} s; "
                f"read {usage.input} (+{usage.cache_read} kept), wrote {usage.output} at {rate:.1f}/s"
            )
            return delta.response
    raise AssertionError("no response")


async def _cancel(provider: LocalProvider, label: str, request: ProviderRequest, after: str) -> None:
    stream = provider.stream(request)
    async for delta in stream:
        if (after == "text" and delta.text) or (after == "progress" and "reading" in (delta.progress or "")):
            break
    began = time.perf_counter()
    await stream.aclose()
    left = time.perf_counter()
    await provider.complete(_request("x", max_output_tokens=1))
    print(
        f"{label:<34} caller free after {(left - began) * 1000:.1f} ms, "
        f"next answer (a token) after {time.perf_counter() - began:.2f} s"
    )


async def main() -> None:
    """Measure cold, warm, rewriting, cancelling, and a new worker with the prompt on disk."""
    folder = Path(tempfile.mkdtemp(prefix="aar-"))
    path = sys.argv[1] if len(sys.argv) > 1 else None
    print(f"{usable_cores()} cores")
    try:
        stay = ProviderConfig(model_path=path, keep_warm=120)
        async with _provider(stay, folder) as provider:
            await _ask(provider, "cold: start, load, read", _request("Say hi.", max_output_tokens=8))
            await _ask(provider, "warm, same run", _request("Say bye.", max_output_tokens=8))
        async with _provider(stay, folder) as provider:
            await _ask(provider, "warm, second run", _request("Say ho.", max_output_tokens=8))
            await _ask(provider, "prose", _request(STORY, max_output_tokens=150))
            await _ask(provider, "rewrite a file", _request(REWRITE, max_output_tokens=900))
            await _cancel(provider, "cancel while it writes", _request(STORY), "text")
            long = _request("other words " * 1500, max_output_tokens=1)
            await _cancel(provider, "cancel while it reads", long, "progress")
            memory = (await provider.status())["memory"]
            print("memory", {name: f"{value / 1e6:.0f} MB" for name, value in memory.items()})
        end = ProviderConfig(model_path=path, keep_warm=0)
        async with _provider(end, folder) as provider:
            await provider.complete(_request("x", max_output_tokens=1))
        await asyncio.sleep(1.5)
        async with _provider(end, folder) as provider:
            await _ask(provider, "new worker, prompt on disk", _request("Say hi.", max_output_tokens=8))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
