"""The proxy for commands, spoken to over real sockets (SECURITY T12, T13, T19)."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from aar.safety.sandbox.domains import AllowedDomains
from aar.safety.sandbox.proxy import DomainProxy, proxy_variables

OPEN, SHUT = "127.0.0.2", "127.0.0.1"
"""Loopback addresses, of which the tests count the first as one of the internet."""


@dataclass
class Bench:
    """A proxy, an echo server on both addresses, and names that lead to them."""

    proxy: DomainProxy
    domains: AllowedDomains
    address: tuple[str, int]
    port: int
    names: dict[str, list[list[str]]]
    asked: list[str] = field(default_factory=list[str])
    reached: list[str] = field(default_factory=list[str])

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, 5)

    def http(self, text: bytes) -> bytes:
        with self.connect() as sock:
            sock.sendall(text)
            return read_all(sock)

    def socks(self, kind: int, host: bytes, port: int | None = None, *, command: int = 1) -> int:
        """Return the reply code; echoes a word when it is 0."""
        with self.connect() as sock:
            sock.sendall(b"\x05\x01\x00")
            assert sock.recv(2) == b"\x05\x00"
            sock.sendall(bytes((5, command, 0, kind)) + host + struct.pack("!H", port or self.port))
            reply = sock.recv(10)
            if reply[1] == 0:
                sock.sendall(b"hello\n")
                assert sock.recv(100) == b"hello\n"
            return reply[1]


def read_all(sock: socket.socket) -> bytes:
    data = b""
    while part := sock.recv(65536):
        data += part
    return data


def echo_server(address: str, port: int, reached: list[str]) -> tuple[socket.socket, Callable[[], None]]:
    listener = socket.create_server((address, port))

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            reached.append(address)
            with sock:
                sock.sendall(sock.recv(65536))

    thread = threading.Thread(target=serve)
    thread.start()

    def stop() -> None:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()

    return listener, stop


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("aar.safety.sandbox.proxy.is_public", lambda address: address == OPEN)
    reached: list[str] = []
    first, stop_first = echo_server(OPEN, 0, reached)
    port = first.getsockname()[1]
    _, stop_second = echo_server(SHUT, port, reached)
    names: dict[str, list[list[str]]] = {"good.example": [[OPEN]], "xn--bcher-kva.example": [[OPEN]]}
    asked: list[str] = []

    async def resolver(host: str, _port: int) -> list[str]:
        asked.append(host)
        answers = names.get(host, [[host]])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    domains = AllowedDomains(
        ["good.example:*", "xn--bcher-kva.example:*", "models.example:*"], ["models.example"]
    )
    proxy = DomainProxy(domains, resolver)
    listener = socket.create_server((SHUT, 0))
    address = listener.getsockname()
    proxy.start(listener)
    yield Bench(proxy, domains, address, port, names, asked, reached)
    proxy.close()
    stop_first()
    stop_second()


def name(host: str) -> bytes:
    raw = host.encode("latin-1")
    return bytes((len(raw),)) + raw


def test_connect_leads_to_an_allowed_host(bench: Bench) -> None:
    with bench.connect() as sock:
        sock.sendall(f"CONNECT Good.Example.:{bench.port} HTTP/1.1\r\nHost: evil.com\r\n\r\n".encode())
        assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")
        sock.sendall(b"ping")
        assert sock.recv(100) == b"ping"
    assert bench.asked == ["good.example"]


def test_plain_requests_are_addressed_to_the_host_that_was_judged(bench: Bench) -> None:
    sent = bench.http(
        f"GET http://good.example:{bench.port}/a?b#c HTTP/1.1\r\nHost: evil.com\r\nHost: x\r\n"
        "Proxy-Authorization: secret\r\nConnection: keep-alive\r\nAccept: */*\r\n\r\n".encode()
    )
    assert sent.startswith(b"GET /a?b HTTP/1.1\r\n")
    assert f"Host: good.example:{bench.port}\r\n".encode() in sent
    assert b"evil.com" not in sent
    assert b"secret" not in sent
    assert b"Connection: close" in sent
    assert b"Accept: */*" in sent


def test_socks_leads_to_an_allowed_host(bench: Bench) -> None:
    assert bench.socks(3, name("good.example")) == 0
    assert bench.reached == [OPEN]


BAD = {
    "NUL byte before an allowed name": "evil.com\0.good.example",
    "NUL byte after an allowed name": "good.example\0.evil.com",
    "user information": "good.example@evil.com",
    "line break": "good.example\r\nX: y",
    "another name": "evil.com",
    "allowed name as a prefix": "good.example.evil.com",
    "allowed name as a suffix": "notgood.example",
    "short address": "127.1",
    "number as an address": "2130706433",
    "octal address": "0177.0.0.1",
    "host of a model": "models.example",
    "host of a model with a dot": "MODELS.example.",
}


@pytest.mark.parametrize("attack", BAD)
def test_socks_refuses_and_remembers(bench: Bench, attack: str) -> None:
    assert bench.socks(3, name(BAD[attack])) == 2
    assert bench.reached == []
    assert bench.asked == []
    (blocked,) = bench.proxy.blocked_since(0)
    assert blocked.port == bench.port
    assert blocked.host.isprintable()


@pytest.mark.parametrize("attack", BAD)
def test_connect_refuses(bench: Bench, attack: str) -> None:
    answer = bench.http(f"CONNECT {BAD[attack]}:{bench.port} HTTP/1.1\r\n\r\n".encode("latin-1"))
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))
    assert bench.reached == []


@pytest.mark.parametrize(
    "target",
    ["http://good.example:{port}@evil.com/", "http://evil.com\\@good.example:{port}/", "https://good.example/",
     "//good.example/", "/", "ftp://good.example/", "http://good.example:99999999/", "good.example:{port}"],
)  # fmt: skip
def test_odd_targets_of_plain_requests_are_refused(bench: Bench, target: str) -> None:
    answer = bench.http(f"GET {target.format(port=bench.port)} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))
    assert bench.reached == []


def test_an_international_name_is_judged_in_its_one_spelling(bench: Bench) -> None:
    target = f"bücher.example:{bench.port}".encode()
    answer = bench.http(b"CONNECT " + target + b" HTTP/1.1\r\n\r\n" + b"x")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert bench.asked == ["xn--bcher-kva.example"]


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (1, socket.inet_aton("127.0.0.1")),
        (1, socket.inet_aton("169.254.169.254")),
        (4, socket.inet_pton(socket.AF_INET6, "::1")),
        (4, socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1")),
    ],
)
def test_socks_addresses_are_refused_without_a_rule(bench: Bench, kind: int, raw: bytes) -> None:
    assert bench.socks(kind, raw) == 2
    assert bench.reached == []
    assert bench.proxy.blocked_since(0)[0].rule is not None


def test_a_rule_for_an_address_and_port_opens_that_one(bench: Bench) -> None:
    bench.domains.add(f"{SHUT}:{bench.port}")
    assert bench.socks(1, socket.inet_aton(SHUT)) == 0
    assert bench.socks(1, socket.inet_aton(SHUT), bench.port - 1) == 2


def test_a_name_that_leads_to_this_machine_is_refused(bench: Bench) -> None:
    bench.names["good.example"] = [[SHUT]]
    assert bench.socks(3, name("good.example")) == 2
    assert bench.reached == []
    (blocked,) = bench.proxy.blocked_since(0)
    assert "private" in blocked.reason
    assert blocked.rule is None


def test_of_several_addresses_only_public_ones_are_dialled(bench: Bench) -> None:
    bench.names["good.example"] = [[SHUT, OPEN, SHUT]]
    assert bench.socks(3, name("good.example")) == 0
    assert bench.reached == [OPEN]


def test_a_name_is_resolved_once_and_dialled_as_judged(bench: Bench) -> None:
    # DNS rebinding: whoever asked a second time would be led to this machine.
    bench.names["good.example"] = [[OPEN], [SHUT]]
    assert bench.socks(3, name("good.example")) == 0
    assert bench.asked == ["good.example"]
    assert bench.reached == [OPEN]
    assert bench.socks(3, name("good.example")) == 2
    assert bench.reached == [OPEN]


@pytest.mark.parametrize("command", [2, 3, 9])
def test_socks_listens_for_nobody(bench: Bench, command: int) -> None:
    assert bench.socks(3, name("good.example"), command=command) == 7
    assert bench.reached == []


@pytest.mark.parametrize(
    "junk", [b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b"\x16\x03\x01", b"GET\r\n\r\n", b"\0" * 50]
)
def test_what_is_no_protocol_gets_no_way_out(bench: Bench, junk: bytes) -> None:
    with bench.connect() as sock:
        sock.sendall(junk)
        sock.shutdown(socket.SHUT_WR)
        answer = read_all(sock)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert bench.reached == []


def test_rules_that_come_later_hold_at_once_and_each_refusal_is_told_once(bench: Bench) -> None:
    for _ in range(3):
        assert bench.socks(3, name("late.example")) == 2
    (blocked,) = bench.proxy.blocked_since(0)
    assert blocked.rule == f"late.example:{bench.port}"
    bench.names["late.example"] = [[OPEN]]
    bench.domains.add(blocked.rule)
    assert bench.socks(3, name("late.example")) == 0


def test_the_variables_lead_programs_to_the_proxy_but_not_from_loopback() -> None:
    variables = proxy_variables(1234)
    assert variables["HTTPS_PROXY"] == variables["http_proxy"] == "http://127.0.0.1:1234"
    assert "127.0.0.1" in variables["NO_PROXY"].split(",")
