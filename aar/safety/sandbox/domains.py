"""Which hosts commands may reach: one parse of a host name, compared label by label.

A rule is ``HOST``, ``*.HOST`` (its subdomains), either with ``:PORT`` (or ``:*``), an address with a port,
or the name of a preset. Without a port 80 and 443 are meant.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from aar.protocol.errors import ConfigurationError
from aar.protocol.late import late_pattern
from aar.protocol.ports import BlockedHost

PRESETS: dict[str, tuple[str, ...]] = {
    "pypi": ("pypi.org", "files.pythonhosted.org"),
    "npm": ("registry.npmjs.org", "registry.yarnpkg.com"),
    "crates": ("crates.io", "index.crates.io", "static.crates.io"),
    "go": ("proxy.golang.org", "sum.golang.org"),
    "github": (
        "github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com",
        "objects.githubusercontent.com", "release-assets.githubusercontent.com",
    ),
}  # fmt: skip
"""Rules by a short name."""

PROVIDERS = (
    "api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "openrouter.ai",
    "api.groq.com", "api.mistral.ai", "api.deepseek.com", "api.x.ai", "api.together.xyz",
    "api.fireworks.ai", "api.cerebras.ai",
)  # fmt: skip
"""Hosts of models, which no command ever reaches: a key of somebody else's would make them a way out."""

_USUAL_PORTS = (80, 443)
_LABEL = late_pattern(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = late_pattern(r"(?:0x[0-9a-f]*|[0-9]+)")
_IDNA_DOTS = late_pattern("[\u3002\uff0e\uff61]")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class BadHostError(ValueError):
    """No host name, or one that others might read differently."""


def parse_host(text: str) -> str:
    """Return the one spelling of a host: lower case, ASCII (IDNA), no dot at its end, addresses as usual.

    Raises:
        BadHostError: Control characters, user names, odd numbers, empty or overlong labels …
    """
    if not text or len(text) > 1000 or any(char.isspace() or not char.isprintable() for char in text):
        raise BadHostError("a host name is not empty and has no spaces or control characters")
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        if bare is not text:
            raise BadHostError("no address between the brackets") from None
    name = _IDNA_DOTS.sub(".", text).removesuffix(".").lower()
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii").lower()
        except UnicodeError as error:
            raise BadHostError(f"no host name: {error}") from error
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadHostError("no host name")
    # "127.1" and "0x7f.1" are addresses for some resolvers.
    if _NUMBER.fullmatch(labels[-1]):
        raise BadHostError("an address is written in full")
    return name


@dataclass(frozen=True, slots=True)
class DomainRule:
    """One allowed host.

    Attributes:
        host: As of `parse_host`.
        subdomains: Whether its subdomains are meant, not itself.
        port: ``None``: the usual ones; 0: any.
    """

    host: str
    subdomains: bool = False
    port: int | None = None

    def covers(self, host: str, port: int) -> bool:
        """Return whether ``host`` (as of `parse_host`) may be reached at ``port``."""
        if self.port is None and port not in _USUAL_PORTS:
            return False
        if self.port and port != self.port:
            return False
        if not self.subdomains:
            return host == self.host
        mine, theirs = self.host.split("."), host.split(".")
        return len(theirs) > len(mine) and theirs[-len(mine) :] == mine

    @property
    def names_address(self) -> bool:
        """Whether it names an address and a port: then a private one is meant as well."""
        return self.port is not None and _address(self.host) is not None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port or '*'}"
        return f"{'*.' if self.subdomains else ''}{host}{port}"


def parse_rule(text: str) -> tuple[DomainRule, ...]:
    """Return the rule, or those of a preset.

    Raises:
        ConfigurationError: It is neither.
    """
    if text in PRESETS:
        return tuple(DomainRule(host) for host in PRESETS[text])
    wanted, host, port = text.strip(), text.strip(), None
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*):(\d{1,5}|\*)", wanted)
    if match:
        host, port = match[1], 0 if match[2] == "*" else int(match[2])
    subdomains = host.startswith("*.")
    try:
        name = parse_host(host.removeprefix("*."))
    except BadHostError as error:
        raise ConfigurationError(
            f"allow_domains: {text!r} is no host: {error}. "
            f"Write HOST, *.HOST, HOST:PORT or one of {', '.join(PRESETS)}."
        ) from error
    if (match and match[2] != "*" and not 0 < int(match[2]) < 65536) or (subdomains and _address(name)):
        raise ConfigurationError(f"allow_domains: {text!r} is no host with a port.")
    if "." not in name and ":" not in name and name != "localhost":
        raise ConfigurationError(
            f"allow_domains: {text!r} would allow a whole top-level domain, or means nothing."
        )
    if subdomains and "." not in name:
        raise ConfigurationError(f"allow_domains: {text!r} would allow a whole top-level domain.")
    return (DomainRule(name, subdomains, port),)


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Return whether an address belongs to the internet, not to this machine, network or link."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is not None:
            return is_public(str(inner))
        if found in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AllowedDomains:
    """The hosts of one session; can grow while it runs.

    Args:
        rules: ``[sandbox] allow_domains``.
        never: Hosts that stay out of reach whatever the rules say, besides those of `PROVIDERS`.
    """

    def __init__(self, rules: Iterable[str] = (), never: Iterable[str] = ()) -> None:
        self._rules: dict[DomainRule, None] = {}
        self._never = {*PROVIDERS, *(parse_host(host) for host in never if host)}
        for rule in rules:
            self.add(rule)

    @property
    def rules(self) -> tuple[DomainRule, ...]:
        """All rules, presets taken apart."""
        return tuple(self._rules)

    def add(self, rule: str) -> None:
        """Allow one more.

        Raises:
            ConfigurationError: It is no rule.
        """
        self._rules |= dict.fromkeys(parse_rule(rule))

    def shut(self, hosts: Iterable[str]) -> None:
        """Keep more hosts out of reach, whatever the rules say."""
        self._never |= {parse_host(host) for host in hosts if host}

    def judge(self, host: str, port: int) -> BlockedHost | None:
        """Return why ``host`` may not be reached; ``None``: it may."""
        if host in self._never:
            return BlockedHost(host, port, "it is the host of a model, which commands never reach", None)
        if any(rule.covers(host, port) for rule in self._rules):
            return None
        rule = DomainRule(host, port=None if port in _USUAL_PORTS and _address(host) is None else port)
        return BlockedHost(host, port, "it is not in allow_domains", str(rule))

    def may_be_private(self, host: str, port: int) -> bool:
        """Return whether a rule names this very address."""
        named = any(rule.names_address and rule.covers(host, port) for rule in self._rules)
        return named or any(rule.host == "localhost" == host and rule.port == port for rule in self._rules)
