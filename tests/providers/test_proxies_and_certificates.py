"""Proxies and certificates of the environment are honoured; what is wrong with them is one sentence."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import Delta, Provider, ProviderCapabilities, ProviderRequest
from aar.providers.http.client import is_loopback_address, server_of
from aar.providers.openai_compatible import Endpoint, OpenAICompatibleProvider
from tests.cli.support import aar
from tests.support.model_server import ModelServer, Reply, model_server

ASK = ProviderRequest("m", "", [Message(role="user", content=(TextBlock(text="hi"),))])
FINE = Reply(text="Fine.")


@asynccontextmanager
async def asking(base_url: str) -> AsyncIterator[OpenAICompatibleProvider]:
    provider = OpenAICompatibleProvider(Endpoint("p", base_url), lambda _: ProviderCapabilities())
    try:
        yield provider
    finally:
        await provider.aclose()


class Proxy:
    """A proxy on the loopback: sends whatever it is asked for to one server, and remembers for whom it did."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.asked: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        head = await reader.readuntil(b"\r\n\r\n")
        method, address, _ = head.decode("latin-1").split(" ", 2)
        self.asked.append(f"{method} {address}")
        to_server, from_server = await asyncio.open_connection("127.0.0.1", self.target)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 X\r\n\r\n")
        else:
            from_server.write(head)
        with suppress(ConnectionError):
            await asyncio.gather(_pump(reader, from_server), _pump(to_server, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificate and key for models.example and 127.0.0.1, its own authority, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=aar-test"
    names = "subjectAltName=DNS:models.example,IP:127.0.0.1"
    command = ["openssl", *words.split(), "-keyout", str(key), "-out", str(cert), "-addext", names]
    subprocess.run(command, check=True, capture_output=True)
    both.write_text(key.read_text() + cert.read_text())
    return both


def tls(authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    return context


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_server_elsewhere_is_reached_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    async with ModelServer([FINE]) as server:
        proxy = Proxy(server.port)
        async with proxy.serving() as address, asking("http://models.example/v1") as provider:
            monkeypatch.setenv(variable, address)
            assert (await provider.complete(ASK)).text == "Fine."
            assert proxy.asked == ["POST http://models.example/v1/chat/completions"]


async def test_https_goes_through_a_tunnel_and_is_checked_at_its_end(
    monkeypatch: pytest.MonkeyPatch, authority: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    async with ModelServer([FINE], tls=tls(authority)) as server:
        proxy = Proxy(server.port)
        async with proxy.serving() as address:
            monkeypatch.setenv("HTTPS_PROXY", address)
            async with asking("https://models.example/v1") as provider:
                assert (await provider.complete(ASK)).text == "Fine."
            async with asking("https://other.example/v1") as provider:
                with pytest.raises(
                    ProviderError, match=r"certificate of other\.example is not trusted"
                ) as caught:
                    await provider.complete(ASK)
        assert proxy.asked == ["CONNECT models.example:443", "CONNECT other.example:443"]
    assert (caught.value.error_kind, caught.value.retryable) == (ErrorKind.NETWORK, False)


async def test_no_proxy_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(1)
    async with proxy.serving() as address, asking("http://models.invalid/v1") as provider:
        monkeypatch.setenv("HTTP_PROXY", address)
        monkeypatch.setenv("NO_PROXY", "models.invalid")
        with pytest.raises(ProviderError, match=r"models\.invalid was not found"):
            await provider.complete(ASK)
    assert proxy.asked == []


async def test_this_machine_is_never_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(1)
    async with proxy.serving() as address, ModelServer([FINE]) as server, asking(server.base_url) as provider:
        monkeypatch.setenv("HTTP_PROXY", address)
        monkeypatch.setenv("ALL_PROXY", address)
        assert (await provider.complete(ASK)).text == "Fine."
    assert proxy.asked == []


async def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:s3cr3t-word@127.0.0.1:9")
    async with asking("https://models.example/v1") as provider:
        with pytest.raises(ProviderError) as caught:
            await provider.complete(ASK)
    said = str(caught.value)
    assert said.startswith("The proxy 127.0.0.1:9 to models.example cannot be reached")
    assert said.endswith("Check HTTPS_PROXY and NO_PROXY.")
    assert "s3cr3t" not in said


async def test_a_certificate_of_ones_own_is_trusted_by_its_file(
    monkeypatch: pytest.MonkeyPatch, authority: Path
) -> None:
    async with ModelServer([FINE], tls=tls(authority)) as server:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        async with asking(server.base_url) as provider:
            with pytest.raises(ProviderError, match="name the file with its CA certificate in SSL_CERT_FILE"):
                await provider.complete(ASK)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        async with asking(server.base_url) as provider:
            assert (await provider.complete(ASK)).text == "Fine."


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_ends_the_run_before_anything_is_sent(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    flags = ["--model", "openai-compatible/m", "--base-url", "https://127.0.0.1:9/v1", "--no-session"]
    ran = aar("run", "Say hello.", *flags, cwd=tmp_path, env={"SSL_CERT_FILE": str(file)})
    assert ran.code == 3
    assert f"The certificates of SSL_CERT_FILE ({file}) cannot be read: " in ran.err
    assert "Name a file in PEM format, or unset the variable." in ran.err


async def test_a_proxy_that_makes_no_sense_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "gopher://127.0.0.1:70")
    async with asking("https://models.example/v1") as provider:
        with pytest.raises(ConfigurationError, match="The proxy of HTTPS_PROXY cannot be used"):
            await provider.complete(ASK)


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("https://api.example/v1", "api.example"),
        ("https://API.example:443/v1", "api.example"),
        ("http://api.example:443/v1", "api.example:443"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://[::1]:8080/v1", "[::1]:8080"),
        ("http://localhost./v1", "localhost"),
    ],
)
def test_a_server_is_named_with_the_port_that_matters(address: str, server: str) -> None:
    assert server_of(address) == server
    assert is_loopback_address(server) == ("example" not in server)


class Watched(Provider):
    """Tells whether its stream was closed."""

    name = "watched"
    closed = False

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        from aar.providers.base import ProviderResponse

        try:
            yield Delta(response=ProviderResponse((), None, "end_turn"))
            yield Delta(text="too much")
        finally:
            self.closed = True

    def capabilities(self, model: str) -> ProviderCapabilities:
        return ProviderCapabilities()


async def test_a_stream_is_closed_as_soon_as_the_whole_answer_is_there() -> None:
    provider = Watched()
    await provider.complete(ASK)
    assert provider.closed


def test_the_command_line_falls_back_with_and_without_leave(tmp_path: Path) -> None:
    with model_server([Reply(status=500, error="broken")]) as first, model_server([FINE]) as second:
        config = tmp_path / "config.toml"
        config.write_text(
            '[model]\nname = "here/m"\nretries = 1\nfallback = ["far/m", "near/m"]\n'
            f'[providers.here]\nbase_url = "{first.base_url}"\n[providers.near]\nbase_url = "{second.base_url}"\n'
            '[providers.far]\nbase_url = "http://models.invalid/v1"\n'
        )
        flags = ["--config", config, "--no-session"]
        ran = aar("run", "Say hello.", *flags, cwd=tmp_path)
        assert (ran.code, ran.out) == (0, "Fine.\n")
        assert "far/m was not asked: this conversation was with a model on this machine" in ran.err
        assert "failed: broken. Try again later, or use another model. Going on with near/m." in ran.err
        ran = aar("run", "Say hello.", *flags, "--set", "model.fallback_remote=allow", cwd=tmp_path)
        assert (ran.code, ran.out) == (0, "Fine.\n")
        assert "Going on with far/m." in ran.err
        assert "The host models.invalid was not found." in ran.err
        assert [request.body["model"] for request in second.requests] == ["m", "m"]
