"""Vectors of texts: from a server that speaks OpenAI's ``/embeddings``, or of a model inside of a package."""

from __future__ import annotations

import asyncio
import math
import mmap
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Final, cast

from aar.config.schema import Config
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.protocol.notes import Embedder
from aar.protocol.usage import Usage
from aar.providers.http.client import HttpClient, host_of, network_error, server_of
from aar.providers.http.errors import parse_body, server_error
from aar.providers.http.provider import is_network_failure, json_headers, lower_names, secret_texts
from aar.providers.keys import KeyCommand, find_key, headers_for, provider_settings
from aar.providers.presets import ALIASES, PRESETS

PACKAGE: Final = "wordllama"
"""The package whose wheel holds a table of vectors; the extra ``embeddings`` installs it."""
_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR: Final = "embedding.weight"
_TIMEOUT_S: Final = 15.0
_BATCH: Final = 64
_MOST_DIMENSIONS: Final = 8192
_MOST_BYTES: Final = 50_000_000
_MOST_TOKENS: Final = 10_000_000
_MOST: Final = 1e100
"""Of a number in a vector: the square of a larger one may be none."""
_KINDS: Final = ("chat", "ollama")


def make_embedder(
    name: str,
    config: Config,
    *,
    environ: Mapping[str, str] | None = None,
    run_command: KeyCommand | None = None,
) -> Embedder:
    """Return what makes vectors; nothing is opened or loaded yet.

    Args:
        name: ``wordllama`` for the model inside of that package, else ``provider/model``.
        config: Settings of providers.
        environ: Where keys are looked up; default: the process's environment.
        run_command: Runs ``api_key_command``.

    Raises:
        ConfigurationError: There is no such provider, or its address or key is missing.
    """
    if name == PACKAGE:
        return PackagedEmbedder()
    given, _, model = name.partition("/")
    provider = ALIASES.get(given, given)
    preset, settings = PRESETS.get(provider), provider_settings(given, config)
    address = settings.base_url or (preset.base_url if preset is not None else None)
    if not model or address is None or (preset is not None and preset.kind not in _KINDS):
        raise ConfigurationError(
            f"[memory] embeddings is {name!r}; write {PACKAGE!r}, or PROVIDER/MODEL with a provider that has "
            "OpenAI's /embeddings (openai, ollama, one of your own with base_url)."
        )
    if preset is not None and preset.kind == "ollama" and not address.rstrip("/").endswith("/v1"):
        address = f"{address.rstrip('/')}/v1"
    host = host_of(address)
    key = find_key(provider, host, config, environ=environ, run_command=run_command)
    own = headers_for(provider, host, config)
    sign = {} if key is None else {"authorization": f"Bearer {key.get_secret_value()}"}
    return ServedEmbedder(
        model,
        address,
        json_headers(sign, own, stream=False),
        secret_texts([key], own),
        min(settings.timeout, _TIMEOUT_S),
    )


class ServedEmbedder:
    """Asks a server; implements `aar.protocol.notes.Embedder`. Not for the event loop's thread.

    Args:
        model: Name of the model there.
        base_url: Address, up to ``/v1``.
        headers: Of each request.
        secrets: Texts that must not be in any sentence.
        timeout_s: Seconds without a byte after which a request has failed.
    """

    least = 0.4

    def __init__(
        self,
        model: str,
        base_url: str,
        headers: Mapping[str, str],
        secrets: tuple[str, ...],
        timeout_s: float,
    ) -> None:
        self._model, self._base_url, self._headers = model, base_url.rstrip("/"), dict(headers)
        self._secrets, self._timeout_s = secrets, timeout_s
        self._server = server_of(base_url)
        self.name = f"{self._server}/{model}"
        self._usage, self._counting = Usage(), Lock()

    def take_usage(self) -> Usage:
        """Return the tokens that were sent since this was asked last."""
        with self._counting:
            taken, self._usage = self._usage, Usage()
        return taken

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text.

        Raises:
            ProviderError: The server failed, or its answer is none.
        """
        # A loop of its own in a thread of its own: callers may be in a thread that has one.
        with ThreadPoolExecutor(1, thread_name_prefix="aar-embeddings") as pool:
            return pool.submit(lambda: asyncio.run(self._all(texts))).result()

    async def _all(self, texts: Sequence[str]) -> list[list[float]]:
        http = HttpClient(self._base_url, self._headers, self._timeout_s)
        try:
            found: list[list[float]] = []
            for at in range(0, len(texts), _BATCH):
                found += await self._some(http, texts[at : at + _BATCH])
            return found
        except Exception as error:
            if not is_network_failure(error):
                raise
            raise network_error(error, server=self._server, answering=False, secrets=self._secrets) from error
        finally:
            await http.aclose()

    async def _some(self, http: HttpClient, texts: Sequence[str]) -> list[list[float]]:
        client = await http.get()
        asked = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        async with asyncio.timeout(2 * self._timeout_s):
            async with client.stream("POST", f"{self._base_url}/embeddings", json=asked) as response:
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > _MOST_BYTES:
                        raise self._strange("it is too long")
        if response.status_code != 200:
            raise server_error(
                response.status_code,
                lower_names(response.headers),
                bytes(body),
                server=self._server,
                model=self._model,
                secrets=self._secrets,
            )
        answer = parse_body(bytes(body))
        with self._counting:
            self._usage += _usage(answer, texts)
        return self._read(answer, len(texts))

    def _read(self, answer: object, count: int) -> list[list[float]]:
        table = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        rows = table.get("data")
        if not isinstance(rows, list) or len(cast("list[object]", rows)) != count:
            raise self._strange("it does not hold a vector for each text")
        found: list[list[float]] = [[] for _ in range(count)]
        for at, row in enumerate(cast("list[object]", rows)):
            item = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
            place, vector = item.get("index", at), item.get("embedding")
            if not isinstance(place, int) or not 0 <= place < count or not _is_vector(vector):
                raise self._strange("a vector in it is none")
            found[place] = unit(cast("list[float]", vector))
        if len({len(vector) for vector in found}) != 1:
            raise self._strange("its vectors differ in length")
        return found

    def _strange(self, why: str) -> ProviderError:
        text = f"The answer of {self._server} to a request for vectors cannot be used: {why}."
        return ProviderError(ErrorKind.MALFORMED_RESPONSE, text)


def _usage(answer: object, texts: Sequence[str]) -> Usage:
    """Return the tokens that an answer tells, else about as many as ``texts`` have."""
    told = cast("dict[str, Any]", answer).get("usage") if isinstance(answer, dict) else None
    count = cast("dict[str, Any]", told).get("prompt_tokens") if isinstance(told, dict) else None
    if isinstance(count, int) and 0 <= count <= _MOST_TOKENS:
        return Usage(input=count)
    return Usage(input=sum(len(text) // 4 + 1 for text in texts), estimated=True)


def _is_vector(value: object) -> bool:
    if not isinstance(value, list):
        return False
    numbers = cast("list[object]", value)
    return 0 < len(numbers) <= _MOST_DIMENSIONS and all(
        isinstance(number, int | float) and abs(number) <= _MOST for number in numbers
    )


def unit(vector: Sequence[float]) -> list[float]:
    """Return a vector of length 1 in the same direction; one of nothing but zeros stays."""
    length = math.sqrt(sum(number * number for number in vector))
    return [number / length for number in vector] if length else list(vector)


class PackagedEmbedder:
    """The mean of the vectors of a text's tokens, from the table in the package `PACKAGE`.

    The package itself is not imported, which would take a second: its two files are read.
    """

    least = 0.3
    name = PACKAGE

    def take_usage(self) -> Usage:
        """Return nothing: no server is asked."""
        return Usage()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text.

        Raises:
            ConfigurationError: The package is not installed, or is not as expected.
        """
        try:
            tokenizer, table, dimensions = _packaged()
        except (ImportError, OSError, ValueError, KeyError) as error:
            raise ConfigurationError(
                f"[memory] embeddings = {PACKAGE!r} needs that package "
                f"(in aar's folder: pip install -e .[embeddings]): {error}"
            ) from error
        # One by one: a batch starts threads, about which the library complains where a process forks.
        encoded = (tokenizer.encode(text, add_special_tokens=False).ids for text in texts)
        return [_mean(ids, table, dimensions) for ids in encoded]


@lru_cache(maxsize=1)
def _packaged() -> tuple[Any, memoryview, int]:
    """Return the tokenizer, the table as bytes of half floats, and the length of a row."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"there is no {PACKAGE}")
    folder = Path(next(iter(spec.submodule_search_locations)))
    from importlib import import_module

    tokenizer: Any = import_module("tokenizers").Tokenizer.from_file(str(folder / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # safetensors: the length of the header, the header as JSON, the numbers.
    with (folder / _WEIGHTS).open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    (length,) = struct.unpack_from("<Q", data)
    header = cast("dict[str, Any]", parse_body(bytes(data[8 : 8 + length])))
    tensor = header[_TENSOR]
    begin, end = tensor["data_offsets"]
    rows, dimensions = tensor["shape"]
    if tensor["dtype"] != "F16" or end - begin != 2 * rows * dimensions:
        raise ValueError("its table of vectors is of another form")
    return tokenizer, data[8 + length + begin : 8 + length + end], dimensions


def _mean(ids: Sequence[int], table: memoryview, dimensions: int) -> list[float]:
    total = [0.0] * dimensions
    form = f"<{dimensions}e"
    for token in ids:
        row = struct.unpack_from(form, table, 2 * dimensions * token)
        total = [one + other for one, other in zip(total, row, strict=True)]
    return unit(total)
