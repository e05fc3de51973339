"""From ``[providers.gemini]`` and the environment to the way in which Gemini is reached."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from aar.config.schema import Config
from aar.protocol.errors import ConfigurationError
from aar.providers import catalog
from aar.providers.base import Provider
from aar.providers.gemini.provider import Endpoint, GeminiProvider
from aar.providers.gemini.wire import GOOGLE_HOST, SdkAccess
from aar.providers.http.client import host_of, is_loopback
from aar.providers.keys import KeyCommand, find_key, headers_for, provider_settings

_OWN_SETTINGS = frozenset({"vertex", "project", "location", "sdk"})
_NAME = re.compile(r"[a-z\d][a-z\d.:-]*")
"""Projects and locations become part of addresses."""
_EXPRESS_HOST = "aiplatform.googleapis.com"


def make_gemini(
    config: Config,
    base_url: str | None,
    environ: Mapping[str, str] | None,
    run_command: KeyCommand | None,
) -> Provider:
    """Make the provider; see `aar.providers.factory.make_provider`.

    Raises:
        ConfigurationError: An address cannot be used, or Vertex AI lacks a project or a host of Google.
    """
    environ = os.environ if environ is None else environ
    settings = provider_settings("gemini", config)
    address = base_url or settings.base_url
    sdk, key = None, None
    if _wants_vertex(settings.extra, environ, address):
        sdk = _vertex(settings.extra, config, address, environ, run_command)
    else:
        host = host_of(address) if address else GOOGLE_HOST
        key = find_key("gemini", host, config, environ=environ, run_command=run_command)
    if sdk is None and _is_on(settings.extra.get("sdk")):
        sdk, key = SdkAccess(vertex=False, key=key), None
    endpoint = Endpoint(
        base_url=address,
        key=key,
        headers=headers_for("gemini", host_of(address) if address else GOOGLE_HOST, config),
        timeout=settings.timeout,
        idle_timeout=settings.idle_timeout,
        extra={name: value for name, value in settings.extra.items() if name not in _OWN_SETTINGS},
        stream=config.model.stream,
        sdk=sdk,
    )
    return GeminiProvider(endpoint, partial(catalog.lookup, "gemini", config=config))


def _wants_vertex(extra: Mapping[str, Any], environ: Mapping[str, str], address: str | None) -> bool:
    """The config decides; else the variable of Google's own tools, where no other address is named."""
    if "vertex" in extra:
        return _is_on(extra["vertex"])
    return address is None and _is_on(environ.get("GOOGLE_GENAI_USE_VERTEXAI"))


def _is_on(value: Any) -> bool:
    return str(value).strip().lower() in {"1", "true"}


def _vertex(
    extra: Mapping[str, Any],
    config: Config,
    address: str | None,
    environ: Mapping[str, str],
    run_command: KeyCommand | None,
) -> SdkAccess:
    if address is not None:
        host = host_of(address)
        if not (is_loopback(host) or host == "googleapis.com" or host.endswith(".googleapis.com")):
            raise ConfigurationError(
                f"Google's credentials do not go to {host}. Take vertex out of [providers.gemini], "
                "and give the key of that server by api_key_env, or remove base_url."
            )
    project = str(extra.get("project") or environ.get("GOOGLE_CLOUD_PROJECT", "")).strip() or None
    location = str(extra.get("location") or environ.get("GOOGLE_CLOUD_LOCATION", "")).strip() or None
    for name, value in (("project", project), ("location", location)):
        if value and not _NAME.fullmatch(value):
            raise ConfigurationError(
                f"{value!r} is no {name} of Google Cloud. Correct {name} in extra of [providers.gemini], "
                f"or the variable GOOGLE_CLOUD_{name.upper()}."
            )
    if project:
        return SdkAccess(project=project, location=location or "global")
    key = find_key("gemini", _EXPRESS_HOST, config, environ=environ, run_command=run_command)
    if key is None:
        raise ConfigurationError(
            "Vertex AI needs a project. Set project in extra of [providers.gemini], or GOOGLE_CLOUD_PROJECT; "
            "with a key of Vertex AI's express mode set GOOGLE_API_KEY instead."
        )
    return SdkAccess(key=key)
