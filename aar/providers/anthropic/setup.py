"""From ``[providers.anthropic]`` and the environment to the way in which Claude models are reached."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from aar.config.schema import Config
from aar.providers import catalog
from aar.providers.anthropic.client import check_backend, find_backend
from aar.providers.anthropic.provider import AnthropicProvider
from aar.providers.base import Provider
from aar.providers.http.client import host_of
from aar.providers.keys import KeyCommand, find_key, headers_for, provider_settings


def make_anthropic(
    config: Config,
    base_url: str | None,
    environ: Mapping[str, str] | None,
    run_command: KeyCommand | None,
) -> Provider:
    """Make the provider; see `aar.providers.factory.make_provider`.

    Raises:
        ConfigurationError: An address or backend cannot be used, or something that it needs is missing.
    """
    environ = os.environ if environ is None else environ
    settings = provider_settings("anthropic", config)
    endpoint, extra = find_backend(settings.extra, base_url or settings.base_url, environ)
    host = host_of(endpoint.base_url)
    endpoint = replace(
        endpoint,
        key=find_key("anthropic", host, config, environ=environ, run_command=run_command),
        headers=headers_for("anthropic", host, config),
        timeout=settings.timeout,
        idle_timeout=settings.idle_timeout,
        extra=extra,
        stream=config.model.stream,
        cache=config.model.cache != "off",
    )
    if endpoint.backend != "api" and settings.api_key_env is None and settings.api_key_command is None:
        # The clouds have keys of their own; the vendor's is none of them.
        endpoint = replace(endpoint, key=None)
    check_backend(endpoint, environ)
    return AnthropicProvider(endpoint, partial(catalog.lookup, "anthropic", config=config))
