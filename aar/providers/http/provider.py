"""What providers that ask a server over HTTP share: asking again in another way, and telling what failed."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from pydantic import SecretStr

from aar import __version__
from aar.protocol.errors import AarError, ErrorKind, ProviderError
from aar.providers.base import Delta, Provider, ProviderCapabilities, ProviderRequest
from aar.providers.http.client import network_error

_ERROR_BODY_LIMIT = 1_000_000
_DRAIN_S = 0.25
_SECRET_CHARS = 8
"""A header's value that is shorter is no secret, and would be found in every other sentence."""


class Adapted(Exception):  # noqa: N818 - not an error: the request is sent again in another way
    """The server refused how it was asked, and is asked otherwise from now on."""


@dataclass(slots=True)
class Progress:
    """How far a request has come: whether its answer has begun."""

    answering: bool = False


class HttpProvider(Provider):
    """Asks a server; what it refuses is asked once more in another way.

    Attributes:
        max_refusals: How often one question is asked again in another way.
    """

    max_refusals: ClassVar[int] = 3

    def __init__(self, describe: Callable[[str], ProviderCapabilities], secrets: tuple[str, ...]) -> None:
        """Args: ``describe`` tells what a model can do; ``secrets`` must not be in any sentence."""
        self._describe = describe
        self._secrets = secrets

    def capabilities(self, model: str) -> ProviderCapabilities:
        """Tell what ``model`` can do."""
        return self._describe(model)

    async def stream(self, request: ProviderRequest) -> AsyncGenerator[Delta]:
        """Ask, and yield the answer piece by piece."""
        chances = self.max_refusals
        while True:
            try:
                async with aclosing(self._attempt(request, may_adapt=chances > 0)) as deltas:
                    async for delta in deltas:
                        yield delta
                return
            except Adapted as adapted:
                notice = str(adapted)
            chances -= 1
            yield Delta(progress=notice)

    @abstractmethod
    def _attempt(self, request: ProviderRequest, *, may_adapt: bool) -> AsyncGenerator[Delta]:
        """Ask once.

        Raises:
            Adapted: The server refused how it was asked; only where ``may_adapt``.
            ProviderError: It failed.
        """

    @contextmanager
    def _told(self) -> Generator[Progress]:
        """Tell whatever the transport raises inside as a `ProviderError`."""
        progress = Progress()
        try:
            yield progress
        except (AarError, Adapted):
            raise
        except Exception as error:
            raise self._failure(error, answering=progress.answering) from error

    def _failure(self, error: Exception, *, answering: bool) -> ProviderError:
        """Return what a failure of the network means; every other one is raised as it is."""
        if not is_network_failure(error):
            raise error
        return network_error(error, server=self.server, answering=answering, secrets=self._secrets)


def is_network_failure(error: Exception) -> bool:
    """Tell whether the transport failed, and not aar."""
    import httpx2

    kinds = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError)
    return isinstance(error, kinds)


def moved_elsewhere(status: int, headers: Mapping[str, str], server: str) -> ProviderError | None:
    """Return the error that a redirect is: none is followed, as the key is for this server only."""
    if not 300 <= status < 400:
        return None
    target = headers.get("location", "")[:200]
    text = f"{server} sends requests elsewhere ({target}). Set base_url to the right address."
    return ProviderError(ErrorKind.INVALID_REQUEST, text, status=status)


def secret_texts(keys: Iterable[SecretStr | None], headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys and the values of ``headers`` that must not be in any sentence."""
    texts = (*(key.get_secret_value() for key in keys if key is not None), *headers.values())
    return tuple(text for text in texts if len(text) >= _SECRET_CHARS)


def json_headers(sign: Mapping[str, str], more: Mapping[str, str], *, stream: bool) -> dict[str, str]:
    """Return the headers of a request with a JSON body; ``sign`` goes over aar's, ``more`` over both."""
    return {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json" if stream else "application/json",
        "user-agent": f"aar/{__version__}",
        **sign,
        **lower_names(more),
    }


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Return ``headers`` with their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


async def read_error_body(pieces: AsyncIterator[bytes]) -> bytes:
    """Read the body of an error. What came before a cut is enough."""
    import httpx2

    body = bytearray()
    with suppress(httpx2.HTTPError):
        async for piece in pieces:
            body += piece
            if len(body) > _ERROR_BODY_LIMIT:
                break
    return bytes(body)


async def drain(pieces: AsyncIterator[bytes]) -> bytes:
    """Read what follows the end mark, shortly: a body read to its end leaves the connection usable."""
    rest = b""
    with suppress(Exception):  # The answer is complete; how the connection ends does not matter.
        async with asyncio.timeout(_DRAIN_S):
            async for piece in pieces:
                rest += piece
    return rest


def model_names(body: Any) -> list[str]:
    """Return the names in a server's list of models, whatever its shape."""
    if isinstance(body, dict):
        answer = cast("dict[str, Any]", body)
        body = answer.get("data") or answer.get("models")
    found: list[str] = []
    for item in cast("list[Any]", body) if isinstance(body, list) else []:
        name: Any = item
        if isinstance(item, dict):
            fields = cast("dict[str, Any]", item)
            name = fields.get("id") or fields.get("name")
        if isinstance(name, str) and name:
            found.append(name.removeprefix("models/"))
    return found
