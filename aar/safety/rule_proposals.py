"""The rule that "don't ask again" offers: the narrowest one that is still of use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from aar.safety.rules import Rule, parse_rule
from aar.safety.shell_types import words

_SUBCOMMANDS = words(
    "git cargo go npm pnpm yarn uv pip pip3 poetry docker make just dotnet gradle mvn kubectl terraform"
    " brew apt gh bun deno rake bundle composer mix cmake conda hatch tox nox pre-commit rustup"
)
_SAFE_TO_WIDEN = words(
    "ls cat mkdir touch pytest ruff mypy pyright black isort eslint prettier tsc jest vitest cmake"
    " ctest ninja phpunit rspec rubocop golangci-lint clang-format shellcheck du df stat tree head tail"
    " wc grep rg sort uniq diff"
)
_NEVER = words(
    "rm rmdir sudo doas su env xargs sh bash dash zsh ksh fish eval exec source . python python2"
    " python3 node ruby perl php lua deno bun awk gawk sed dd mkfs chmod chown mv cp ln curl wget ssh"
    " scp rsync nc ncat socat telnet watch setsid timeout nice nohup time stdbuf command builtin find"
    " parallel kill killall pkill export alias trap docker-compose npx bunx uvx crontab at systemctl"
    " mount tee truncate shred install xdg-open open osascript busybox script flock"
)
_OPEN_VERBS = words(
    "exec run x dlx shell -c -e config push clean reset filter-branch submodule bisect rebase daemon"
    " delete apply destroy publish login eval rm"
)


def propose_rule(argv: Sequence[str]) -> str | None:
    """Return the narrowest rule that is still of use for this command, or ``None`` when there is none.

    Nothing is proposed that would be as good as everything: a shell, an interpreter, ``rm``, ``sudo``, a
    wrapper and commands that send or overwrite are proposed word for word, or not at all.
    """
    if not argv or any(re.search(r"[\x00-\x1f*()]", word) for word in argv) or not argv[0]:
        return None
    name = argv[0].rsplit("/", 1)[-1]
    text = " ".join(argv)
    if re.fullmatch(r"(python|pypy)[\d.]*", name) and len(argv) > 2 and argv[1] == "-m":
        return (
            f"bash({argv[0]} -m {argv[2]} *)"
            if argv[2] in {"pytest", "unittest", "mypy", "ruff"}
            else f"bash({text})"
        )
    if name in _NEVER or re.fullmatch(r"(python|pypy|node|ruby|perl|php|lua)[\d.]*", name):
        return _exact_or_none(argv, name, text)
    if name in {"npm", "pnpm", "yarn", "bun"} and len(argv) > 2 and argv[1] == "run":
        return f"bash({name} run {argv[2]} *)"
    if name in _SUBCOMMANDS and len(argv) > 1 and re.fullmatch(r"[a-z][a-z-]*", argv[1]):
        return f"bash({text})" if argv[1] in _OPEN_VERBS else f"bash({argv[0]} {argv[1]} *)"
    if argv[0] in _SAFE_TO_WIDEN:
        return f"bash({argv[0]} *)"
    return f"bash({text})" if len(text) <= 200 else None


def _exact_or_none(argv: Sequence[str], name: str, text: str) -> str | None:
    """Word for word, if the words say what will happen: not for code given as an argument."""
    hidden = name in {
        "sudo",
        "doas",
        "su",
        "eval",
        "source",
        ".",
        "env",
        "xargs",
        "exec",
        "busybox",
        "crontab",
        "at",
    }
    code = any(
        word.startswith("-") and len(word) <= 3 and word[-1] in "ce" for word in argv[1:]
    ) and name not in {"rm", "cp"}
    if hidden or code or len(argv) < 2 or len(text) > 200:
        return None
    return f"bash({text})"


def propose_path_rule(kind: str, path: Path, root: Path) -> str | None:
    """Return the rule for exactly this file: ``write(/src/a.py)``, ``read(//etc/hosts)``."""
    inside = path.is_relative_to(root)
    text = "/" + path.relative_to(root).as_posix() if inside else "/" + path.as_posix()
    if re.search(r"[\x00-\x1f()]", text) or text in {"/.", "//"}:
        return None
    escaped = re.sub(r"([*?\[\]\\! ])", r"\\\1", text)
    return f"{kind}({escaped})"


_WHOLE_TOOLS = words("bash web_fetch web_search write_file edit_file apply_patch read_file grep task mcp ext")
_FEWEST_PARTS = 2
_ANYTHING = words("exec run x dlx shell config filter-branch submodule bisect daemon eval tool")
_RUNNERS = words("uv poetry hatch conda pipenv pdm")
_SCRIPTS = words("npm pnpm yarn bun deno cargo go")


def too_broad(text: str) -> str | None:
    """Return why a rule is as good as everything, so that no answer to a question saves it; else ``None``.

    Raises:
        ConfigurationError: It is not a rule.
    """
    rule = parse_rule(text)
    if rule.kind == "tool":
        broad = rule.pattern in _WHOLE_TOOLS or (rule.pattern.endswith("*") and not _names_a_server(rule))
        return f"{text} covers every call" if broad else None
    if rule.kind == "domain":
        return f"{text} covers half the web" if re.fullmatch(r"\*\.[^.]+", rule.pattern) else None
    if rule.kind == "bash":
        return _broad_command(text, rule.pattern.split())
    outside = rule.pattern.startswith(("~/", "//"))
    parts = [part for part in rule.pattern.strip("~/").split("/") if part and not set(part) <= set("*?")]
    if not parts or (outside and "*" in rule.pattern and len(parts) < _FEWEST_PARTS):
        return f"{text} covers every file"
    return None


def _names_a_server(rule: Rule) -> bool:
    """``mcp__github__*`` names one server; ``mcp__*`` all of them."""
    return re.fullmatch(r"mcp__[^*]+__[^*]*\*", rule.pattern) is not None


def _broad_command(text: str, pattern: list[str]) -> str | None:
    if not any("*" in word for word in pattern):
        return None
    name = pattern[0].rsplit("/", 1)[-1]
    if "*" in name or name in _NEVER or re.fullmatch(r"(python|pypy|node|ruby|perl|php|lua)[\d.]*", name):
        module = len(pattern) > 2 and pattern[1] == "-m" and "*" not in pattern[2] and pattern[2] != "pip"
        if module and name.startswith(("python", "pypy")):
            return None
        return f"{text} would let {name} do anything"
    second = pattern[1] if len(pattern) > 1 else "*"
    if name not in _SUBCOMMANDS:
        return None
    if second == "run" and name in _RUNNERS and len(pattern) > 2:
        return _broad_command(text, pattern[2:])
    if second == "run" and name in _SCRIPTS and len(pattern) > 2 and "*" not in pattern[2]:
        return None
    if "*" in second or second.startswith("-") or second in _ANYTHING:
        return f"{text} would let {name} do anything"
    return None
