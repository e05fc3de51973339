"""``local``: the embedded model. It runs in a worker process that outlives the run (see `local_worker`)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aar.config.schema import ProviderConfig
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.protocol.messages import TextBlock
from aar.protocol.usage import Price, Usage
from aar.providers.base import (
    Delta,
    Provider,
    ProviderCapabilities,
    ProviderRequest,
    ProviderResponse,
    StopKind,
)
from aar.providers.local.chat import chat_messages
from aar.providers.local.client import LLAMA_ENGINE, Connection, WorkerGone, WorkerSpec, connect
from aar.providers.local.weights import (
    DEFAULT_WEIGHTS,
    ModelWeights,
    WeightsLocation,
    find_weights,
    prepare_weights,
    weights_installed,
)

DEFAULT_CONTEXT = 8192
"""Tokens of context; 235 MB of memory with the default model."""

MAX_OUTPUT_TOKENS = 4096
"""Tokens of an answer when the request sets no limit."""

_STOPS: Mapping[str, StopKind] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
}
_PAUSES = (0.0, 0.1, 0.4, 1.5)
"""Seconds before another try: a killed worker's socket takes calls until its 2 GB are given back."""

_SHORT_PROMPT = 64
"""Tokens that are read too quickly to be told about."""

_PROGRESS_STEP = 0.25
"""Seconds between progress lines."""


class LocalProvider(Provider):
    """The embedded model.

    Args:
        config: ``[providers.local]``: ``model_path``, ``context_window``, ``threads``, ``keep_warm``,
            ``timeout``, ``extra``.
        data_dir: aar's data folder; weights and evaluated prompts lie in ``models`` under it.
        runtime_dir: Private folder with a short path, for sockets.
        weights: The model.
        engine: What the worker runs; tests put their own here.

    `stream` also raises `ConfigurationError` when the weights or llama.cpp are missing or broken.
    """

    name = "local"

    def __init__(
        self,
        config: ProviderConfig | None,
        data_dir: Path,
        runtime_dir: Path,
        *,
        weights: ModelWeights = DEFAULT_WEIGHTS,
        engine: str = LLAMA_ENGINE,
    ) -> None:
        self._config = config or ProviderConfig()
        self._data_dir = data_dir
        self._runtime_dir = runtime_dir
        self._weights = weights
        self._engine = engine
        self._model: Path | None = None
        self._idle: list[Connection] = []

    def capabilities(self, model: str) -> ProviderCapabilities:
        """Tell what the embedded model can do."""
        return ProviderCapabilities(
            context_window=self._config.context_window or DEFAULT_CONTEXT,
            max_output_tokens=MAX_OUTPUT_TOKENS,
            tools=False,
            dialect="files",
            price=Price(input=0, output=0),
            compact_prompt=True,
            small=True,
            grammar=True,
        )

    async def list_models(self) -> list[str]:
        """Return the one model."""
        return [self._weights.name]

    def check(self) -> WeightsLocation:
        """Tell where the weights are; reads none of them and starts nothing.

        Raises:
            ConfigurationError: The model cannot run here; the sentence says what to do.
        """
        if self._engine == LLAMA_ENGINE and find_spec("xllamacpp") is None:
            raise ConfigurationError(
                "The embedded model needs the `local` extra: run `pip install -e '.[local]'` in aar's folder."
            )
        return find_weights(self._config, self._data_dir, self._weights)

    def unknown(self, name: str) -> str | None:
        """Return what to say of a model that is not the embedded one; a file of one's own has any name."""
        if name == self._weights.name or self._config.model_path is not None:
            return None
        return f"There is no embedded model {name!r}: use local/{self._weights.name}."

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Ask the model; see `Provider.stream`."""
        unknown = self.unknown(request.model)
        if unknown is not None:
            raise ProviderError(ErrorKind.UNKNOWN_MODEL, unknown)
        async for delta in self._prepare():
            yield delta
        answer = _Answer(request.model)
        async with aclosing(self._ask(_body(request, self._config))) as events:
            async for event in events:
                for delta in answer.take(event):
                    yield delta

    async def status(self) -> dict[str, Any]:
        """Return the worker's ``pid``, ``loaded`` and ``memory`` (bytes by kind); starts one if need be."""
        async for _ in self._prepare():
            pass
        connection = await self._connection([])
        try:
            async for event in connection.ask({"op": "status"}, self._config.timeout):
                if "done" in event:
                    return event["done"]
        except (WorkerGone, TimeoutError):
            connection.drop()
        finally:
            self._release(connection)
        raise _gone(False)

    async def aclose(self) -> None:
        """Hang up. The worker stays for ``keep_warm`` seconds."""
        idle, self._idle = self._idle, []
        for connection in idle:
            if connection.usable:
                await connection.close()
            else:
                connection.drop()

    async def _prepare(self) -> AsyncIterator[Delta]:
        """Have the weights ready, telling how far it is."""
        if self._model is not None and self._model.is_file():
            return
        location = self.check()
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def say(text: str) -> None:
            loop.call_soon_threadsafe(lines.put_nowait, text)

        reporter = _Reporter(say)
        work = asyncio.ensure_future(
            asyncio.to_thread(prepare_weights, location, reporter.report, self._weights)
        )
        work.add_done_callback(lambda _: lines.put_nowait(None))
        try:
            while (line := await lines.get()) is not None:
                yield Delta(progress=line)
            self._model = await work
        finally:
            reporter.aborted = True
            work.cancel()

    async def _ask(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Send a request; a worker that had gone, or was about to, is replaced without a word."""
        for pause in (*_PAUSES, None):
            notes: list[str] = []
            connection = await self._connection(notes)
            heard, held = False, True
            try:
                for note in notes:
                    yield {"progress": note}
                async with aclosing(connection.ask(body, self._config.timeout)) as events:
                    async for event in events:
                        heard = True
                        if "done" in event or "error" in event:
                            # Before the last event: who has it need not come back for the end.
                            held = False
                            self._release(connection)
                        yield event
                return
            except WorkerGone:
                if heard or pause is None:
                    raise _gone(heard) from None
                await asyncio.sleep(pause)
            except TimeoutError:
                connection.drop()
                raise ProviderError(
                    ErrorKind.TIMEOUT,
                    f"The embedded model gave nothing for {self._config.timeout:g} seconds.",
                ) from None
            finally:
                if held:
                    self._release(connection)

    def _release(self, connection: Connection) -> None:
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.drop()

    async def _connection(self, notes: list[str]) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.drop()
        return await connect(self._spec(), notes.append)

    def _spec(self) -> WorkerSpec:
        assert self._model is not None
        return WorkerSpec(
            model=self._model,
            n_ctx=self._config.context_window or DEFAULT_CONTEXT,
            threads=self._config.threads or usable_cores(),
            prefix_dir=self._data_dir / "models" / "prefixes",
            runtime_dir=self._runtime_dir,
            keep_warm=self._config.keep_warm,
            engine=self._engine,
        )


class _Reporter:
    """Turns byte counts into lines, a few a second, and aborts the work when nobody listens any more."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last = 0.0
        self.aborted = False

    def report(self, what: str, done: int, whole: int) -> None:
        if self.aborted:
            raise asyncio.CancelledError
        now = time.monotonic()
        if now - self._last < _PROGRESS_STEP and done < whole:
            return
        self._last = now
        share = f" ({done // 1_000_000:,} of {whole // 1_000_000:,} MB)" if 0 < done < whole else ""
        self._say(what + share)


class _Answer:
    """Turns the worker's events into deltas."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._parts: list[str] = []

    def take(self, event: Mapping[str, Any]) -> list[Delta]:
        """Return the deltas of one event.

        Raises:
            ProviderError: The request failed.
            ConfigurationError: The model cannot be loaded here.
        """
        if text := event.get("text"):
            self._parts.append(text)
            return [Delta(text=text)]
        if line := event.get("progress"):
            return [Delta(progress=line)]
        if prompt := event.get("prompt"):
            return _prompt_progress(prompt)
        if error := event.get("error"):
            raise _failure(error)
        if done := event.get("done"):
            return [Delta(response=self._response(done))]
        return []

    def _response(self, done: Mapping[str, Any]) -> ProviderResponse:
        text = "".join(self._parts)
        raw = str(done["stop"])
        return ProviderResponse(
            blocks=(TextBlock(text=text),) if text else (),
            usage=Usage(input=done["input"], output=done["output"], cache_read=done["cache_read"]),
            stop=_STOPS.get(raw, "other"),
            stop_raw=raw,
            model=self._model,
        )


def _prompt_progress(prompt: Mapping[str, Any]) -> list[Delta]:
    processed, total = int(prompt.get("processed", 0)), int(prompt.get("total", 0))
    if total - processed < _SHORT_PROMPT:
        return []
    return [Delta(progress=f"reading the prompt ({processed} of {total} tokens)")]


def _failure(error: Mapping[str, Any]) -> ProviderError | ConfigurationError:
    kind, message = str(error.get("kind")), str(error.get("message"))
    if kind == ErrorKind.CONFIGURATION:
        return ConfigurationError(message)
    known = kind if kind in set(ErrorKind) else ErrorKind.PROVIDER_INTERNAL
    return ProviderError(ErrorKind(known), message)


def _gone(heard: bool) -> ProviderError:
    kind = ErrorKind.INCOMPLETE_STREAM if heard else ErrorKind.PROVIDER_INTERNAL
    return ProviderError(kind, "The process of the embedded model ended before its answer did: ask again.")


def _body(request: ProviderRequest, config: ProviderConfig) -> dict[str, Any]:
    return {
        "op": "complete",
        "messages": chat_messages(request),
        "max_tokens": request.max_output_tokens or MAX_OUTPUT_TOKENS,
        "temperature": request.temperature,
        "stop": list(request.stop),
        "extra": {**config.extra, **request.extra},
        "json_schema": dict(request.output_schema) if request.output_schema is not None else None,
        "keep_warm": config.keep_warm,
    }


def installed(config: ProviderConfig | None, data_dir: Path) -> bool:
    """Tell cheaply whether ``local`` can run here: llama.cpp and weights are there. Imports neither."""
    return find_spec("xllamacpp") is not None and weights_installed(config, data_dir)


def usable_cores() -> int:
    """Return how many physical cores this process may use; two threads on one core are no faster."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores: set[str] = set()
    for cpu in allowed:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(path.read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, min(len(cores), _cgroup_quota()))


def _cgroup_quota() -> int:
    """Return the whole processors that a container may use; many when there is no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return 1024
