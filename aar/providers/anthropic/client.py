"""Anthropic's SDK as the way to a server: signing in and transport, for its own API and two clouds.

The SDK is imported when the first client is made, in a thread. It is used through its low-level ``post``
with a body of bytes, so that it never walks a conversation.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from pydantic import SecretStr

from aar import __version__
from aar.protocol.errors import ConfigurationError
from aar.providers.http.client import STALL_S, host_of, is_loopback

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.lib.bedrock import AsyncAnthropicBedrock
    from anthropic.lib.vertex import AsyncAnthropicVertex
    from httpx2 import AsyncClient

    Client = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex

API_ADDRESS = "https://api.anthropic.com"
HOME_SEAL = "anthropic:"
"""The name under which blocks of the vendor's own models are kept."""
_CLOUDS = {"bedrock": ("boto3", ".amazonaws.com"), "vertex": ("google.auth", ".googleapis.com")}
_SETTINGS = ("backend", "region", "project", "profile")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How one server is reached.

    Attributes:
        base_url: Address up to, and without, ``/v1/messages``.
        backend: Anthropic's own interface, or a cloud's.
        key: Sent as the backend wants it; ``None``: the SDK looks for credentials where ``may_sign_in``.
        may_sign_in: Whether credentials that the SDK finds by itself may go to this address.
        region: Of the cloud.
        project: Of Google's cloud.
        profile: Of the AWS configuration.
        headers: More headers; they win over those that are made.
        timeout: Seconds without a byte after which a request has failed.
        idle_timeout: The same once an answer has begun.
        extra: Merged into the body of every request.
        stream: Whether answers come piece by piece.
        cache: Whether marks for the prompt cache are put.
    """

    base_url: str = API_ADDRESS
    backend: Literal["api", "bedrock", "vertex"] = "api"
    key: SecretStr | None = None
    may_sign_in: bool = False
    region: str = ""
    project: str = ""
    profile: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 600
    idle_timeout: float = STALL_S
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stream: bool = True
    cache: bool = True

    @property
    def seal(self) -> str:
        """The name under which blocks are kept; the vendor's models read theirs wherever they run."""
        host = host_of(self.base_url)
        home = self.backend != "api" or host.endswith(".anthropic.com")
        return HOME_SEAL if home else f"{HOME_SEAL}{host}"

    def path(self, model: str, *, stream: bool) -> str:
        """Return where ``model`` is asked."""
        if self.backend == "bedrock":
            action = "invoke-with-response-stream" if stream else "invoke"
            return f"/model/{quote(model, safe=':')}/{action}"
        if self.backend == "vertex":
            place = f"/projects/{quote(self.project, safe='')}/locations/{quote(self.region, safe='')}"
            action = "streamRawPredict" if stream else "rawPredict"
            return f"{place}/publishers/anthropic/models/{quote(model, safe='@')}:{action}"
        return "/v1/messages"


def find_backend(
    extra: Mapping[str, Any], base_url: str | None, environ: Mapping[str, str]
) -> tuple[Endpoint, dict[str, Any]]:
    """Return where requests go, and what is left of ``extra`` for their bodies.

    Args:
        extra: Of ``[providers.anthropic]``; ``backend``, ``region``, ``project``, ``profile`` are taken out.
        base_url: Address from a flag or the config.
        environ: Where region and project are looked up.

    Raises:
        ConfigurationError: The backend is unknown, or something that it needs is missing.
    """
    rest = {name: value for name, value in extra.items() if name not in _SETTINGS}
    told = {name: str(extra[name]) for name in _SETTINGS if extra.get(name)}
    backend = told.get("backend", "api")
    if backend == "api":
        address = (base_url or API_ADDRESS).rstrip("/").removesuffix("/messages").removesuffix("/v1")
        return Endpoint(base_url=address, may_sign_in=_is_own(host_of(address))), rest
    if backend == "bedrock":
        region = told.get("region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        region = _need(region, "bedrock", "region", "AWS_REGION")
        address = base_url or f"https://bedrock-runtime.{region}.amazonaws.com"
        return Endpoint(address.rstrip("/"), "bedrock", region=region, profile=told.get("profile")), rest
    if backend == "vertex":
        region = _need(
            told.get("region") or environ.get("CLOUD_ML_REGION"), "vertex", "region", "CLOUD_ML_REGION"
        )
        project = told.get("project") or environ.get("ANTHROPIC_VERTEX_PROJECT_ID")
        project = _need(
            project or environ.get("GOOGLE_CLOUD_PROJECT"), "vertex", "project", "GOOGLE_CLOUD_PROJECT"
        )
        address = base_url or _vertex_address(region)
        return Endpoint(address.rstrip("/"), "vertex", region=region, project=project), rest
    raise ConfigurationError(
        f"There is no backend {backend!r} for anthropic. Write api, bedrock or vertex into extra of "
        "[providers.anthropic]."
    )


def check_backend(endpoint: Endpoint, environ: Mapping[str, str]) -> None:
    """Check that a cloud can be signed in to.

    Raises:
        ConfigurationError: The key would go elsewhere, or the cloud's package is missing.
    """
    if endpoint.backend == "api" or endpoint.key is not None:
        return
    package, home = _CLOUDS[endpoint.backend]
    host = host_of(endpoint.base_url)
    if not host.endswith(home) and not is_loopback(host):
        raise ConfigurationError(
            f"Credentials of {endpoint.backend} do not go to {host}. "
            "Name the variable with its key in api_key_env of [providers.anthropic]."
        )
    if endpoint.backend == "bedrock" and environ.get("AWS_BEARER_TOKEN_BEDROCK"):
        return
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        raise ConfigurationError(
            f"The backend {endpoint.backend} needs a package that is not installed. "
            f"Install it with: pip install 'anthropic[{endpoint.backend}]'"
        )


def warm() -> threading.Thread:
    """Import the SDK in the background; it takes over a second of one core."""
    thread = threading.Thread(target=_import, name="aar-anthropic-sdk", daemon=True)
    thread.start()
    return thread


def _import() -> None:
    import anthropic  # noqa: F401  # pyright: ignore[reportUnusedImport] - kept by the interpreter


def open_client(endpoint: Endpoint, http: AsyncClient) -> Client:
    """Make the SDK's client over ``http``; blocks while the SDK is imported."""
    headers = {"User-Agent": f"aar/{__version__}", **endpoint.headers}
    key = endpoint.key.get_secret_value() if endpoint.key is not None else None
    if endpoint.backend == "bedrock":
        return _open_bedrock(endpoint, http, headers, key)
    if endpoint.backend == "vertex":
        return _open_vertex(endpoint, http, headers, key)
    from anthropic import AsyncAnthropic

    alone = key is None and not endpoint.may_sign_in
    client = AsyncAnthropic(
        # Without one the SDK would take a key from the environment, whatever the address.
        api_key="none" if alone else key,
        base_url=endpoint.base_url,
        http_client=http,
        max_retries=0,
        default_headers=headers,
        open_telemetry=False,
    )
    if alone:
        client.api_key = None
    return client


def _open_bedrock(endpoint: Endpoint, http: AsyncClient, headers: dict[str, str], key: str | None) -> Client:
    from anthropic.lib.bedrock import AsyncAnthropicBedrock

    return AsyncAnthropicBedrock(
        aws_region=endpoint.region,
        aws_profile=endpoint.profile if key is None else None,
        api_key=key,
        base_url=endpoint.base_url,
        http_client=http,
        max_retries=0,
        default_headers=headers,
        open_telemetry=False,
    )


def _open_vertex(endpoint: Endpoint, http: AsyncClient, headers: dict[str, str], key: str | None) -> Client:
    from anthropic.lib.vertex import AsyncAnthropicVertex

    return AsyncAnthropicVertex(
        region=endpoint.region,
        project_id=endpoint.project,
        access_token=key,
        base_url=endpoint.base_url,
        http_client=http,
        max_retries=0,
        default_headers=headers,
        open_telemetry=False,
    )


def connection_headers(endpoint: Endpoint) -> dict[str, str]:
    """Return the headers that the connection itself adds, which the SDK neither sees nor logs.

    The SDK sends a key as a bearer token. Other servers that speak this wire look for it in ``x-api-key``.
    """
    if endpoint.backend != "api" or endpoint.may_sign_in or endpoint.key is None:
        return {}
    return {"x-api-key": endpoint.key.get_secret_value()}


def request_headers(endpoint: Endpoint, betas: list[str]) -> dict[str, Any]:
    """Return the headers of one request; none of them is secret, as the SDK may log them."""
    from anthropic import Omit

    headers: dict[str, Any] = {"Accept": "text/event-stream, application/json"}
    given = {name.lower(): value for name, value in endpoint.headers.items()}
    if betas:
        named = [given["anthropic-beta"]] if given.get("anthropic-beta") else []
        headers["anthropic-beta"] = ",".join([*named, *betas])
    if endpoint.backend != "api":
        return headers
    if not endpoint.may_sign_in:
        if not is_loopback(host_of(endpoint.base_url)):
            headers |= {name: Omit() for name in _environment_headers() if name.lower() not in given}
        if endpoint.key is None and "authorization" not in given:
            headers["Authorization"] = Omit()
    return headers


def wire_version() -> str:
    """Return the version of the wire that clouds want in the body."""
    from anthropic._constants import ANTHROPIC_API_VERSION  # it has no public name

    return ANTHROPIC_API_VERSION


def _environment_headers() -> list[str]:
    """Return the names of headers that the SDK would take from the environment."""
    lines = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n")
    return [line.partition(":")[0].strip() for line in lines if ":" in line]


def _is_own(host: str) -> bool:
    return host == "api.anthropic.com" or host.endswith(".api.anthropic.com")


def _need(value: str | None, backend: str, name: str, variable: str) -> str:
    if not value:
        raise ConfigurationError(
            f"The backend {backend} needs a {name}. "
            f"Set {variable}, or {name} in extra of [providers.anthropic]."
        )
    return value


def _vertex_address(region: str) -> str:
    if region == "global":
        return "https://aiplatform.googleapis.com/v1"
    if region in {"us", "eu"}:
        return f"https://aiplatform.{region}.rep.googleapis.com/v1"
    return f"https://{region}-aiplatform.googleapis.com/v1"
