"""Everything in the table of docs/faults.md happens here, and the user sees what the table says."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import aar.runtime.resilience as resilience
from aar.core.agent import RunResult
from aar.core.provider_runner import ProviderRunner
from aar.core.server_guards import ServerGuards
from aar.protocol.events import Event
from aar.providers.http import wait_hints
from aar.runtime import open_runtime
from tests.cli.support import aar
from tests.support.model_server import ModelServer, Reply, model_server

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"
FINE = Reply(text="Fine.")
NOW = 1_800_000_000


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Attributes:
        reply: What the server does, again and again.
        then: What it does after that.
        elsewhere: Address that is asked instead of the server's; ``SERVER`` in it is the server's own.
        label: How the server is called in sentences; default: host and port.
        tls: Whether the server speaks TLS, with a certificate that nobody knows.
        setting: Of the provider; only what is silent for ever has little time, for the machine may be busy.
    """

    reply: Callable[[], Reply]
    then: Reply | None = None
    elsewhere: str | None = None
    label: str | None = None
    tls: bool = False
    setting: str = "timeout=60"


def limited(then: Reply | None = FINE, error: object = "slow down", **headers: str) -> Fault:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Fault(lambda: Reply(status=429, error=error, headers=named), then)  # type: ignore[arg-type]


def failing(setting: str = Fault.setting, **fields: object) -> Fault:
    return Fault(lambda: Reply(**fields), setting=setting)  # type: ignore[arg-type]


def _delayed_error() -> Reply:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
    return Reply(status=429, error={"message": "slow down", "details": details})


def _dated() -> Reply:
    return Reply(status=429, error="slow down", headers={"retry-after": formatdate(NOW + 7, usegmt=True)})


def _stamped() -> Reply:
    return Reply(status=429, error="slow down", headers={"x-ratelimit-reset": f"{NOW + 7:.3f}"})


_EVENT_ERROR = b'data: {"error": {"message": "Overloaded", "code": 529}}\n\n'
_HALF = b'{"id": "1", "choices": [{"index": 0, "message": {"role": "assistant", "cont'
FAULTS: dict[str, Fault] = {
    "429, `retry-after: 7`": limited(retry_after="7"),
    "429, `retry-after` as a date": Fault(_dated, FINE),
    "429, `retry-after-ms: 7000`": limited(retry_after_ms="7000"),
    "429, `x-ratelimit-reset-requests: 7s`": limited(x_ratelimit_reset_requests="7s"),
    "429, reset header with a time stamp": Fault(_stamped, FINE),
    "429, `retryDelay` in the body": Fault(_delayed_error, FINE),
    '429, "try again in 7s" in the message': limited(error="slow down, try again in 7s"),
    "429 without a hint": limited(None),
    "429, `retry-after: 7200`": limited(retry_after="7200"),
    "429, no money left": limited(
        error={"message": "You exceeded your current quota", "code": "insufficient_quota"}
    ),
    "401": failing(status=401, error="wrong key"),
    "408": failing(status=408),
    "409": failing(status=409),
    "500": failing(status=500),
    "529": failing(status=529),
    "refused connection": Fault(Reply, elsewhere="http://127.0.0.1:{closed}/v1"),
    "DNS failure": Fault(Reply, elsewhere="http://nowhere.invalid/v1", label="nowhere.invalid"),
    "TLS error: unknown certificate": Fault(Reply, tls=True),
    "TLS error: broken handshake": Fault(Reply, elsewhere="https://127.0.0.1:{hanging_up}/v1"),
    "reset mid-stream": failing(text="This is the answer.", cut_after=300),
    "reset after a tool call was shown": failing(tool_calls=[("read_file", {"path": "a"})], cut_after=500),
    "stall mid-stream": failing("idle_timeout=0.1", text="This is the answer.", stall_after=300),
    "no first byte": failing("timeout=0.3", delay_s=60),
    "stream without its end mark": failing(text="This is", finish="", done=False),
    "truncated JSON": failing(body=_HALF),
    "HTML instead of JSON": failing(body=b"<html><title>Welcome</title></html>", content_type="text/html"),
    "empty body": failing(body=b""),
    "200 with an error inside": failing(body=b'{"error": {"message": "The model crashed", "code": 500}}'),
    "200 with an error inside of the stream": failing(body=_EVENT_ERROR, content_type="text/event-stream"),
}


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    fault: str
    seen: str
    how_long: str
    exit_code: int


def rows() -> dict[str, Row]:
    part = DOCUMENT.read_text().split("## The faults")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {fault.strip(): Row(fault, seen, how_long, int(code)) for fault, seen, how_long, code in cells}


def test_the_table_and_the_tests_agree() -> None:
    assert list(rows()) == list(FAULTS)


@dataclass
class Happened:
    """A run that has ended."""

    result: RunResult
    events: list[Event]
    waits: list[float] = field(default_factory=list[float])

    @property
    def seen(self) -> str:
        """The first sentence about the fault."""
        return next(str(event.message) for event in self.events if event.type in {"retry", "error"})

    @property
    def how_long(self) -> str:
        if not self.waits:
            return "at once"
        total = f"{sum(self.waits):.0f} s"
        return (
            f"{total}, then it goes on"
            if self.result.exit_code == 0
            else f"{len(self.waits) + 1} attempts, {total}"
        )


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no time pass in waits, and chance choose the longest."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(wait_hints, "time", SimpleNamespace(time=lambda: NOW))
    runner = partial(ProviderRunner, chance=lambda: 1.0, sleep=sleep)
    monkeypatch.setattr(resilience, "ProviderRunner", runner)
    monkeypatch.setattr(resilience, "GUARDS", ServerGuards())
    return waited


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=aar-test"
    files = ["-keyout", str(key), "-out", str(cert), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)
    both.write_text(key.read_text() + cert.read_text())
    return both


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def closed() -> Iterator[int]:
    """A port at which nobody listens, and nobody else will meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def happens(fault: Fault, cwd: Path, waits: list[float], *, closed: int, certificate: Path) -> Happened:
    replies = [fault.reply(), *([fault.then] if fault.then else [])]
    tls = server_context(certificate) if fault.tls else None

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    rude = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    ports = {"closed": closed, "hanging_up": rude.sockets[0].getsockname()[1]}
    async with rude, ModelServer(replies, tls=tls) as server:
        address = server.base_url if fault.elsewhere is None else fault.elsewhere.format(**ports)
        sets = ["session.store=false", f"providers.openai-compatible.{fault.setting}"]
        runtime = open_runtime(cwd=cwd, model="openai-compatible/m", base_url=address, sets=sets)
        try:
            session = runtime.open_session()
            result = await runtime.agent(session).run("Say hello.", session)
            label = fault.label or address.split("/")[2]
            events = [_named(event, label) for event in session.events()]
            return Happened(result, events, list(waits))
        finally:
            await runtime.aclose()


def _named(event: Event, server: str) -> Event:
    message = getattr(event, "message", None)
    if not isinstance(message, str):
        return event
    named = message.replace(server, "SERVER").replace("127.0.0.1", "SERVER")
    return event.model_copy(update={"message": named})


@pytest.mark.parametrize("name", FAULTS)
async def test_the_user_sees_what_the_table_says(
    name: str,
    tmp_path: Path,
    waits: list[float],
    closed: int,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    row = rows()[name]
    happened = await happens(FAULTS[name], tmp_path, waits, closed=closed, certificate=certificate)
    assert happened.seen == row.seen
    assert happened.how_long == row.how_long
    assert happened.result.exit_code == row.exit_code
    assert not [event for event in happened.events if event.type in {"tool_call", "tool_result"}]
    if row.exit_code:
        assert happened.result.error is not None
        assert [event.type for event in happened.events][-2:] == ["error", "state"]
    else:
        assert happened.result.text == "Fine."


@pytest.mark.parametrize(
    "name",
    ["429, `retry-after: 7200`", "500", "refused connection", "HTML instead of JSON", "reset mid-stream"],
)
def test_the_command_line_says_it_in_one_sentence(name: str, tmp_path: Path, closed: int) -> None:
    row, fault = rows()[name], FAULTS[name]
    with model_server([fault.reply()]) as server:
        address = server.base_url if fault.elsewhere is None else fault.elsewhere.format(closed=closed)
        flags = ["--model", "openai-compatible/m", "--base-url", address, "--set", "model.retries=1"]
        ran = aar("run", "Say hello.", *flags, "--no-session", cwd=tmp_path)
    label = address.split("/")[2]
    assert ran.code == row.exit_code
    assert ran.err.replace(label, "SERVER").replace("127.0.0.1", "SERVER").count(row.seen) == 1
    assert "This" not in ran.out or name == "reset mid-stream"


def test_retries_are_told_on_the_command_line(tmp_path: Path) -> None:
    busy = Reply(status=429, error="slow down", headers={"retry-after-ms": "40"})
    with model_server([busy, FINE]) as server:
        flags = ["--model", "openai-compatible/m", "--base-url", server.base_url, "--no-session"]
        ran = aar("run", "Say hello.", *flags, cwd=tmp_path)
    assert (ran.code, ran.out) == (0, "Fine.\n")
    assert "Trying again in 0.0 s (attempt 1 failed)." in ran.err
