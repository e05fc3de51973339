"""The provider at a loopback server, as the factory makes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aar.config.schema import Config
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import Delta, Provider, ProviderRequest, ProviderResponse
from aar.providers.factory import make_provider
from tests.support.model_server import ModelServer, Reply

KEY = "sk-seeded-0123456789abcdef"
ASK = ProviderRequest(
    model="gpt-5", system="be brief", messages=[Message(role="user", content=(TextBlock(text="hi"),))]
)


def provider_at(
    base_url: str, *, api: str = "responses", environ: dict[str, str] | None = None, **settings: Any
) -> Provider:
    stream = settings.pop("stream", True)
    config = Config.model_validate(
        {
            "model": {"api": api, "stream": stream},
            "providers": {"openai": {"base_url": base_url, "timeout": 60, **settings}},
        }
    )
    return make_provider(
        "openai/gpt-5",
        config,
        data_dir=Path("/nonexistent"),
        runtime_dir=Path("/nonexistent"),
        environ={"OPENAI_API_KEY": KEY} if environ is None else environ,
    )


async def ask(
    replies: Sequence[Reply], *requests: ProviderRequest, **more: Any
) -> tuple[list[list[Delta]], ModelServer]:
    """Ask once for each request (default: `ASK`) and return the deltas of each, and the server."""
    async with ModelServer(replies) as server:
        provider = provider_at(server.base_url, **more)
        try:
            answers = [[delta async for delta in provider.stream(request)] for request in requests or (ASK,)]
        finally:
            await provider.aclose()
    return answers, server


def response_of(deltas: list[Delta]) -> ProviderResponse:
    answer = deltas[-1].response
    assert answer is not None
    return answer


def notices(deltas: list[Delta]) -> list[str]:
    return [delta.progress for delta in deltas if delta.progress]
