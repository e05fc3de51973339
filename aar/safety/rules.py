"""Permission rules: ``bash(git status *)``, ``write(src/**)``, ``web_fetch(domain:docs.python.org)``,
``mcp__server__*``.

``bash(P)`` is matched against each simple command's words joined by one space; `` *`` at the end stands for
any further words, a ``*`` inside of a word for any characters of that word. ``read(P)`` and ``write(P)`` hold
a gitignore pattern for resolved paths relative to the workspace (``~/…`` and ``//…``: outside of it).
``domain:H`` is exact, ``domain:*.H`` its subdomains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aar.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathspec import PathSpec, Pattern

Layer = Literal["managed", "user", "project", "session"]
Effect = Literal["allow", "ask", "deny"]
Kind = Literal["bash", "read", "write", "domain", "tool"]

_SHAPE = re.compile(r"([A-Za-z0-9_.*-]+)(?:\((.*)\))?", re.DOTALL)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")
_PATTERN_TOOLS = "bash, read, write, web_fetch"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        text: As written.
        kind: What it is matched against.
        pattern: Inside the parentheses, or the tool's name.
    """

    text: str
    kind: Kind
    pattern: str

    @property
    def exact(self) -> bool:
        """Whether it covers exactly one thing."""
        return "*" not in self.pattern and not (
            self.kind in {"read", "write"} and re.search(r"[?\[!]|/$", self.pattern)
        )

    def matches_command(self, text: str) -> bool:
        """Whether a simple command, its words joined by one space, is covered."""
        if self.kind == "tool":
            return self.matches_tool("bash")
        return self.kind == "bash" and _command_regex(self.pattern).fullmatch(text) is not None

    def matches_tool(self, name: str) -> bool:
        """Whether every call of the tool ``name`` is covered."""
        return self.kind == "tool" and _name_regex(self.pattern).fullmatch(name) is not None

    def matches_path(self, kind: Literal["read", "write"], path: Path, root: Path) -> bool:
        """Whether ``path`` (absolute, resolved) is covered; ``root`` is the resolved workspace."""
        if self.kind != kind:
            return False
        pattern, base = self.pattern, root
        if pattern.startswith("~/"):
            pattern, base = pattern[1:], Path.home()
        elif pattern.startswith("//"):
            pattern, base = pattern[1:], Path(path.anchor)
        if not path.is_relative_to(base):
            return False
        return _path_spec(pattern).match_file(path.relative_to(base).as_posix())

    def matches_host(self, host: str) -> bool:
        """Whether ``host`` (as `normal_host` gives it) is covered; labels are compared whole."""
        if self.kind != "domain":
            return False
        wanted = self.pattern.split(".")
        labels = host.split(".")
        if wanted[0] == "*":
            return len(labels) >= len(wanted) and labels[-len(wanted) + 1 :] == wanted[1:]
        return labels == wanted


@dataclass(frozen=True, slots=True)
class RuleRef:
    """The rule that decided, and where it was written."""

    text: str
    layer: str


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of one layer."""

    layer: Layer
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    @classmethod
    def parse(
        cls, layer: Layer, allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = ()
    ) -> RuleSet:
        """Parse the rules of one layer.

        Raises:
            ConfigurationError: A rule is not understood, or a managed layer would loosen.
        """
        made = cls(layer, *(tuple(parse_rule(text) for text in texts) for texts in (allow, ask, deny)))
        if layer == "managed" and made.allow:
            raise ConfigurationError(
                f"Managed rules can only tighten: remove the allow rule {made.allow[0].text!r}."
            )
        return made

    def of(self, effect: Effect) -> tuple[Rule, ...]:
        """Return the rules with one effect."""
        return self.allow if effect == "allow" else self.ask if effect == "ask" else self.deny


def parse_rule(text: str) -> Rule:
    """Return the rule that ``text`` writes down.

    Raises:
        ConfigurationError: Names the rule and what is wrong with it.
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise _wrong(text, "write it as tool or tool(pattern), like bash(git status *)")
    name, pattern = match[1], match[2]
    if pattern is None:
        return _tool_rule(text, name)
    if not pattern.strip():
        raise _wrong(text, f"the pattern is empty; write {name} for every call")
    if name == "bash":
        return _bash_rule(text, pattern)
    if name in {"read", "write"}:
        return _path_rule(text, name, pattern)
    if name == "web_fetch":
        return _domain_rule(text, pattern)
    if name.lower() in {"bash", "read", "write", "web_fetch"}:
        raise _wrong(text, f"names are lower-case: write {name.lower()}({pattern})")
    raise _wrong(text, f"{name} takes no pattern, only {_PATTERN_TOOLS} do; write {name} for every call")


def check_examples(text: str, match: Iterable[str] = (), not_match: Iterable[str] = ()) -> None:
    """Make sure that a rule covers what its author says, and nothing that he says it does not.

    Args:
        text: The rule.
        match: Shell commands, paths relative to the workspace, hosts or tool names that it must cover. A
            command is covered when one of its parts is.
        not_match: The same, that it must not cover.

    Raises:
        ConfigurationError: The rule is not understood, or an example is wrong.
    """
    rule = parse_rule(text)
    for example in match:
        if not _covers_example(rule, example):
            raise _wrong_example(text, f"it does not cover {example!r}, which its match says")
    for example in not_match:
        if _covers_example(rule, example):
            raise _wrong_example(text, f"it covers {example!r}, which its not_match rules out")


def _covers_example(rule: Rule, example: str) -> bool:
    if rule.kind == "bash":
        from aar.safety.shell_grammar import parse_command

        return any(rule.matches_command(part.text) for part in parse_command(example).walk())
    if rule.kind == "domain":
        host = normal_host(example if "://" in example else f"https://{example}/")
        return host is not None and rule.matches_host(host)
    if rule.kind == "tool":
        return rule.matches_tool(example)
    root = Path("/workspace")
    path = Path.home() / example[2:] if example.startswith("~/") else root / example
    kind: Literal["read", "write"] = "write" if rule.kind == "write" else "read"
    return rule.matches_path(kind, path, root)


def _wrong_example(text: str, what: str) -> ConfigurationError:
    return ConfigurationError(f"Permission rule {text!r} is not what its examples say: {what}.")


def _wrong(text: str, what: str) -> ConfigurationError:
    return ConfigurationError(f"Permission rule {text!r} is not understood: {what}.")


def _tool_rule(text: str, name: str) -> Rule:
    if "*" in name[:-1]:
        raise _wrong(text, "a * in a tool name can only stand at its end")
    if name in {"write", "read"}:
        raise _wrong(text, f"say which paths, like {name}(src/**); {name}(**) is every path of the workspace")
    return Rule(text, "tool", name)


def _bash_rule(text: str, pattern: str) -> Rule:
    if pattern.endswith(":*"):
        raise _wrong(text, f"write a space instead of the colon: bash({pattern[:-2]} *)")
    if any(ord(char) < 32 for char in pattern):
        raise _wrong(text, "a command rule is one line")
    if re.search(r"(^|\s)(&&|\|\||;|\||&)(\s|$)", pattern):
        raise _wrong(text, "each command of a compound is matched alone; write one rule for each")
    return Rule(text, "bash", " ".join(pattern.split()))


def _path_rule(text: str, name: str, pattern: str) -> Rule:
    if pattern.startswith("!"):
        raise _wrong(text, "a negated pattern is no rule; write the opposite effect instead")
    if pattern.startswith("../") or "/../" in pattern:
        raise _wrong(text, "paths are resolved before matching; write // and the absolute path")
    pattern = pattern.removeprefix("./")
    try:
        _path_spec(pattern)
    except ValueError as error:
        raise _wrong(text, f"the path pattern is invalid ({error})") from error
    return Rule(text, "write" if name == "write" else "read", pattern)


def _domain_rule(text: str, pattern: str) -> Rule:
    host = pattern.removeprefix("domain:")
    if host == pattern:
        raise _wrong(text, f"write web_fetch(domain:{pattern})" if _looks_like_host(pattern) else
                     "write web_fetch(domain:HOST)")  # fmt: skip
    host = host.strip().lower().rstrip(".")
    if not _looks_like_host(host.removeprefix("*.")):
        raise _wrong(
            text, "after domain: comes a host name like docs.python.org, or *.python.org for its subdomains"
        )
    return Rule(text, "domain", host)


def _looks_like_host(host: str) -> bool:
    return bool(host) and all(_LABEL.fullmatch(label) for label in host.lower().split("."))


@lru_cache(maxsize=512)
def _command_regex(pattern: str) -> re.Pattern[str]:
    open_end = pattern == "*" or pattern.endswith(" *")
    words = pattern[:-1].split() if open_end else pattern.split()
    body = " ".join(
        "".join(r"\S*" if part == "*" else re.escape(part) for part in re.split(r"(\*)", word))
        for word in words
    )
    if open_end:
        body = f"{body}(?: .*)?" if body else ".*"
    return re.compile(body, re.DOTALL)


@lru_cache(maxsize=256)
def _name_regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


@lru_cache(maxsize=256)
def _path_spec(pattern: str) -> PathSpec[Pattern]:
    from pathspec import PathSpec

    return PathSpec.from_lines("gitignore", [pattern])


def normal_host(url: str) -> str | None:
    """Return the host of an http(s) URL in lower case, without a final dot; ``None`` for an unsound one.

    Control characters, spaces, user names in the address and hosts that IDNA refuses give ``None``.
    """
    from urllib.parse import urlsplit

    if any(ord(char) <= 32 or 127 <= ord(char) < 160 for char in url) or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode("ascii")
        _ = parts.port
    except (ValueError, UnicodeError):
        return None
    if parts.scheme not in {"http", "https"} or "@" in parts.netloc:
        return None
    host = host.lower().removesuffix(".")
    return host if ":" in host or _looks_like_host(host) else None
