"""One parse of a host name, rules compared label by label, addresses sorted (SECURITY T12, T13, T19)."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.protocol.errors import ConfigurationError
from aar.safety.sandbox.domains import (
    PRESETS,
    PROVIDERS,
    AllowedDomains,
    BadHostError,
    is_public,
    parse_host,
    parse_rule,
)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("example\u3002org", "example.org"),
        ("ｅxample.org", "example.org"),
        ("[::1]", "::1"),
        ("[2001:DB8::0:1]", "2001:db8::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("_dmarc.example.org", "_dmarc.example.org"),
    ],
)
def test_every_host_has_one_spelling(text: str, host: str) -> None:
    assert parse_host(text) == host
    assert parse_host(host) == host


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "a b", "evil.com\0.example.org", "example.org\n", "example.org\t", "user@example.org", "a..b",
        ".example.org", "example.org..", "-a.org", "a-.org", "127.1", "0x7f.1", "2130706433", "0177.0.0.1",
        "1.2.3.4.5", "256.1.1.1", "[example.org]", "[::1", "a/b", "a:80", "a%2eb", "a\u202eb.org", "x" * 64 + ".org",
        ".".join(["a" * 60] * 5), "a\u00adb\0.org",
    ],
)  # fmt: skip
def test_what_others_might_read_differently_is_no_host(text: str) -> None:
    with pytest.raises(BadHostError):
        parse_host(text)


@given(st.text(max_size=40))
def test_a_parsed_host_is_plain_and_parses_to_itself(text: str) -> None:
    try:
        host = parse_host(text)
    except BadHostError:
        return
    assert host.isascii()
    assert not set(host) & set("\0 @/\\\r\n%?#")
    assert parse_host(host) == host


def allows(rule: str, host: str, port: int = 443) -> bool:
    return AllowedDomains([rule]).judge(parse_host(host), port) is None


def test_rules_compare_whole_labels() -> None:
    assert allows("example.org", "EXAMPLE.org.")
    assert not allows("example.org", "sub.example.org")
    assert not allows("example.org", "evil-example.org")
    assert not allows("example.org", "example.org.evil.com")
    assert allows("*.example.org", "a.b.example.org")
    assert not allows("*.example.org", "example.org")
    assert not allows("*.example.org", "notexample.org")
    assert allows("bücher.example", "xn--bcher-kva.example")


def test_ports_are_the_usual_ones_unless_named() -> None:
    assert allows("example.org", "example.org", 80)
    assert not allows("example.org", "example.org", 22)
    assert allows("example.org:22", "example.org", 22)
    assert not allows("example.org:22", "example.org", 443)
    assert allows("example.org:*", "example.org", 9)
    assert allows("[2001:db8::1]:8080", "[2001:db8::1]", 8080)


@pytest.mark.parametrize(
    "rule", ["", "*", "*.com", "org", "*.127.0.0.1", "https://a.org", "a.org:0", "a.org:99999", "a.org:x", "u@a.org",
             "*.*.org", "a.*.org", "a org"],
)  # fmt: skip
def test_rules_that_mean_too_much_or_nothing_are_refused(rule: str) -> None:
    with pytest.raises(ConfigurationError, match="allow_domains"):
        parse_rule(rule)


def test_a_preset_stands_for_its_hosts_only() -> None:
    domains = AllowedDomains(["pypi"])
    assert {rule.host for rule in domains.rules} == set(PRESETS["pypi"])
    assert domains.judge("pypi.org", 443) is None
    assert domains.judge("upload.pypi.org", 443) is not None


@pytest.mark.parametrize("host", [*PROVIDERS, "models.example.org"])
def test_hosts_of_models_are_out_of_reach_whatever_the_rules_say(host: str) -> None:
    parent = host.partition(".")[2]
    rules = [f"{host}:*"] + ([f"*.{parent}:*"] if "." in parent else [])
    blocked = AllowedDomains(rules, never=["models.example.org"]).judge(host, 443)
    assert blocked is not None
    assert blocked.rule is None
    assert "model" in blocked.reason


def test_what_is_blocked_names_the_rule_that_would_allow_just_that() -> None:
    domains = AllowedDomains()
    for host, port in (("example.org", 443), ("example.org", 8080), ("10.1.2.3", 80), ("::1", 5000)):
        blocked = domains.judge(host, port)
        assert blocked is not None
        assert blocked.rule is not None
        domains.add(blocked.rule)
        assert domains.judge(host, port) is None
    assert domains.judge("example.org", 22) is not None


PRIVATE = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fe80::1%eth0",
    "fc00::1", "fd12::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:c0a8:101::",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_of_this_machine_and_of_private_networks_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@given(st.integers(0, 2**32 - 1))
def test_an_address_is_as_public_in_six_as_in_four(number: int) -> None:
    four = ipaddress.IPv4Address(number)
    assert is_public(f"::ffff:{four}") == is_public(str(four))


def test_only_a_rule_with_a_port_opens_a_private_address() -> None:
    domains = AllowedDomains(["10.0.0.1", "10.0.0.2:5432", "db.example.org:5432", "localhost:3000"])
    assert not domains.may_be_private("10.0.0.1", 80)
    assert domains.may_be_private("10.0.0.2", 5432)
    assert not domains.may_be_private("10.0.0.2", 80)
    assert not domains.may_be_private("db.example.org", 5432)
    assert domains.may_be_private("localhost", 3000)
    assert not domains.may_be_private("localhost", 80)
