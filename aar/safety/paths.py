"""Which paths are secrets, which are protected: pure functions over absolute, resolved paths.

All comparisons ignore case, so that ``.ENV`` on a file system that folds case is no way around.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Final

from aar.protocol.late import late_pattern

PROTECTED: Final[tuple[str, ...]] = (
    ".git/hooks",
    ".git/config",
    ".aar",
    ".vscode/tasks.json",
    ".envrc",
    ".github/workflows",
    ".github/actions",
    ".gitlab-ci.yml",
    ".circleci",
    ".travis.yml",
    ".drone.yml",
    ".woodpecker.yml",
    ".woodpecker",
    ".buildkite",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "Jenkinsfile",
    ".husky",
    ".claude",
    ".codex",
    ".agents",
    "AGENTS.md",
    "CLAUDE.md",
)
"""Paths of a workspace that other programs run or obey later: writing them asks, absent ones too."""

SHELL_FILES: Final[tuple[str, ...]] = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".config/fish/config.fish",
)
"""What shells run when they start, protected as well: a workspace may be a home, or be linked into one."""

SECRETS: Final[tuple[str, ...]] = (
    "~/.ssh",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.gnupg",
    "~/.netrc",
    "~/.npmrc",
    "~/.pypirc",
    "~/.docker/config.json",
    "~/.kube",
    "~/.git-credentials",
    "~/.config/git/credentials",
    "~/.config/gh/hosts.yml",
    "~/.config/containers/auth.json",
    "~/.cargo/credentials",
    "~/.cargo/credentials.toml",
    "~/.pgpass",
    "~/.my.cnf",
    "~/.vault-token",
    "~/.password-store",
    "~/.local/share/keyrings",
    "~/.local/share/kwalletd",
    "~/.gnome2/keyrings",
    "~/Library/Keychains",
    "~/.mozilla",
    "~/.thunderbird",
    "~/.librewolf",
    "~/.config/google-chrome",
    "~/.config/chromium",
    "~/.config/BraveSoftware",
    "~/.config/microsoft-edge",
    "~/.config/vivaldi",
    "~/.config/opera",
    "~/snap/firefox",
    "~/snap/chromium",
    "~/Library/Application Support/Google/Chrome",
    "~/Library/Application Support/Firefox",
    "~/Library/Safari",
    "~/Library/Cookies",
    "~/.local/share/aar",
    "~/.config/aar",
    "~/Library/Application Support/aar",
    "/etc/passwd",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/proc/kcore",
    "/proc/kmsg",
    "/run/secrets",
)
"""Files and folders (with all below them) that are not read. ``~`` is the home of the user."""

SECRET_NAMES: Final[tuple[str, ...]] = ("*.pem", "*.key", "*.p12", "*.pfx", "id_*", ".env*")
"""Names that are not read wherever they lie; see `is_secret_name` for the exceptions."""

_ENV_EXAMPLES: Final = frozenset({".env.example", ".env.sample", ".env.template"})
_KEY_NAME: Final = late_pattern(
    r"id_(?:[^.]*|(?:rsa|dsa|ecdsa|ecdsa_sk|ed25519|ed25519_sk|xmss)\..*)", re.DOTALL
)
_NAME: Final = late_pattern(r"(?:.*\.(?:pem|key|p12|pfx)|\.env.*)", re.DOTALL)
_PROCESS: Final = late_pattern(r"/proc/(?:\d+|self|thread-self)/.+", re.DOTALL)


def is_secret_name(name: str) -> bool:
    """Tell whether a file of this name holds secrets by habit.

    ``id_*`` means key files (``id_rsa``, ``id_ed25519.old``, any ``id_…`` without a suffix), not sources
    such as ``id_map.py``. Example files of ``.env`` are no secrets.
    """
    folded = name.casefold()
    if folded in _ENV_EXAMPLES:
        return False
    return bool(_NAME.fullmatch(folded) or _KEY_NAME.fullmatch(folded))


def is_secret(path: Path, *, home: Path | None = None, extra: Sequence[str | Path] = ()) -> bool:
    """Tell whether the resolved, absolute ``path`` may not be read.

    Args:
        path: Absolute and free of links.
        home: Home folder for patterns that begin with ``~``; default: the user's.
        extra: More patterns: absolute paths, ``~/…``, or names with wildcards.
    """
    text = "/" + str(path).casefold().lstrip("/")
    if is_secret_name(path.name) or _PROCESS.fullmatch(text):
        return True
    places = _places(str(home or Path.home()), os.environ.get("AAR_HOME", ""))
    if places.match(text):
        return True
    return any(matches(pattern, path, home=home) for pattern in extra)


def is_protected(path: PurePath | str, *, extra: Sequence[str] = (), whole_git: bool = True) -> bool:
    """Tell whether writing ``path`` (relative to the workspace) must ask.

    The pattern may begin at any folder, so that nested repositories and nested rule files count.

    Args:
        path: What would be written.
        extra: More patterns.
        whole_git: Whether all of ``.git`` counts: file tools have no business there, commands of git have.
    """
    parts = tuple(part.casefold() for part in PurePath(path).parts)
    if whole_git and ".git" in parts:
        return True
    patterns = (*PROTECTED, *SHELL_FILES, *extra)
    return any(_runs_through(_pattern_parts(pattern), parts) for pattern in patterns)


def matches(pattern: str | Path, path: Path, *, home: Path | None = None) -> bool:
    """Tell whether ``path`` is, or lies below, what ``pattern`` names.

    ``/a/b`` and ``~/a`` name places; anything else is matched against each run of parts, with wildcards.
    """
    text = str(pattern)
    if text.startswith("~/"):
        text = str((home or Path.home()) / text[2:])
    if text.startswith("/") and not any(char in text for char in "*?["):
        return _covers("/" + text.strip("/").casefold(), "/" + str(path).casefold().lstrip("/"))
    parts = tuple(part.casefold() for part in path.parts)
    return _runs_through(_pattern_parts(text), parts)


@lru_cache(maxsize=8)
def _places(home: str, aar_home: str) -> re.Pattern[str]:
    """Every secret place as written and, where links are on the way to it, as resolved."""
    given = [home + place[1:] if place.startswith("~") else place for place in SECRETS]
    if aar_home:
        given.append(str(Path(aar_home).absolute()))
    places = dict.fromkeys(given)
    places.update(dict.fromkeys(os.path.realpath(place) for place in given))
    alternatives = "|".join(re.escape(place.casefold()) for place in places)
    return re.compile(f"(?:{alternatives})(?:/|$)")


def _covers(place: str, path: str) -> bool:
    return path == place or path.startswith(place + "/")


@lru_cache(maxsize=512)
def _pattern_parts(pattern: str) -> tuple[re.Pattern[str], ...]:
    return tuple(
        re.compile(translate(part)) for part in pattern.casefold().strip("/").split("/") if part != "**"
    )


def _runs_through(pattern: tuple[re.Pattern[str], ...], parts: tuple[str, ...]) -> bool:
    if not pattern:
        return False
    starts = range(len(parts) - len(pattern) + 1)
    return any(
        all(part.match(parts[start + index]) for index, part in enumerate(pattern)) for start in starts
    )
