"""What a git config makes git execute, so that a change of it by a command can be undone.

Known are the settings that commands of git write themselves and that execute nothing; every other key
counts as executing (``core.fsmonitor``, ``alias.*``, ``filter.*``, ``include.path`` and what later versions
bring). Format: git-config(1), "Syntax".
"""

from __future__ import annotations

import re

from aar.protocol.late import late_pattern

_HARMLESS = late_pattern(
    r"""
    user\.(name|email)
    | branch\..*\.(remote|merge|rebase|description|pushremote)
    | remote\..*\.(url|fetch|push|pushurl|tagopt|prune|mirror|promisor|partialclonefilter)
    | push\.(default|autosetupremote|followtags) | pull\.(rebase|ff) | init\.defaultbranch
    | core\.(bare|filemode|ignorecase|repositoryformatversion|logallrefupdates|autocrlf|eol|safecrlf
      |sparsecheckout|sparsecheckoutcone|precomposeunicode|symlinks|quotepath|longpaths|worktree)
    | extensions\.(worktreeconfig|objectformat|partialclone|refstorage)
    | submodule\..*\.(url|active|branch) | submodule\.active
    | rerere\.enabled | merge\.conflictstyle | fetch\.prune | color\..* | advice\..*
    | lfs\.repositoryformatversion
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_REMOTE_URL = late_pattern(r"(remote\..*\.(url|pushurl)|submodule\..*\.url)", re.IGNORECASE | re.DOTALL)
_SECTION = late_pattern(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_KEY = late_pattern(r"([A-Za-z][A-Za-z0-9-]*)\s*(=?)")

_ESCAPED = late_pattern(r"\\(.)")

Settings = list[tuple[str, str]]
"""Full keys with their values as written, in order."""


class OddConfigError(ValueError):
    """The text is not what git config files look like."""


def parse(text: str) -> Settings:
    """Return all settings of a git config file.

    Raises:
        OddConfigError: Something is not understood.
    """
    found: Settings = []
    prefix: str | None = None
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        rest = line.strip()
        while header := _SECTION.match(rest):
            name, sub = header[1].lower(), header[2]
            prefix = name if sub is None else name + "." + _ESCAPED.sub(r"\1", sub)
            rest = rest[header.end() :].lstrip()
        if not rest or rest[0] in "#;":
            continue
        key = _KEY.match(rest)
        if key is None or prefix is None:
            raise OddConfigError(line)
        value = rest[key.end() :].strip()
        if value and not key[2] and value[0] not in "#;":
            raise OddConfigError(line)
        found.append((f"{prefix}.{key[1].lower()}", value))
    return found


def executing(settings: Settings) -> Settings:
    """Return the settings that may make git start something, sorted."""
    return sorted((key, value) for key, value in settings if not _is_harmless(key, value))


def _is_harmless(key: str, value: str) -> bool:
    if not _HARMLESS.fullmatch(key):
        return False
    plain = value.strip('"').lstrip()
    # "ext::" names a program; a leading dash would be an option of one.
    return not (_REMOTE_URL.fullmatch(key) and ("::" in plain or plain.startswith("-")))


def changes_execution(before: bytes, after: bytes) -> bool:
    """Return whether ``after`` executes something that ``before`` did not, or cannot be read."""
    try:
        old, new = (executing(parse(text.decode())) for text in (before, after))
    except ValueError:
        return before != after
    return old != new


_WRITERS = late_pattern(
    r"\bgit\b[^;&|\n]*?[ \t](branch|remote|config|push|pull|fetch|checkout|switch|clone|init|submodule|"
    r"worktree|sparse-checkout|lfs|flow|subtree|maintenance)\b"
)


def writes_config(argv: tuple[str, ...]) -> bool:
    """Return whether a command looks as if git would want to write its config. Comfort, not a wall."""
    return any(_WRITERS.search(word) for word in (*argv, " ".join(argv)))
