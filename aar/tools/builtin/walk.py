"""Files of a tree without ripgrep: ignore files honoured, links not followed, ``.git`` left out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from aar.protocol.late import late_pattern

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES: Final = (".gitignore", ".ignore", ".rgignore")
"""Files with patterns of what is left out, the stronger later."""

_Rules = tuple[tuple[str, "GitIgnoreSpec"], ...]
_SPECIAL: Final = late_pattern(r"\*\*/|/\*\*$|\*+|\?|\[!?\]?[^\]]*\]|\{[^{}]*\}|.", re.DOTALL)


@lru_cache(maxsize=64)
def glob_regex(pattern: str) -> re.Pattern[str]:
    """Compile a glob (``*``, ``?``, ``**``, ``[ab]``, ``{a,b}``) for paths relative to the search root.

    A pattern without a slash is matched against file names at any depth.
    """
    pattern = pattern.removeprefix("./").lstrip("/")
    if "/" not in pattern:
        pattern = "**/" + pattern
    elif pattern.endswith("/"):
        pattern += "**"
    return re.compile(_translate(pattern), re.DOTALL)


def _translate(pattern: str) -> str:
    return "".join(_piece(match.group()) for match in _SPECIAL.finditer(pattern))


def _piece(piece: str) -> str:
    if piece == "**/":
        return "(?:[^/]+/)*"
    if piece == "/**":
        return "/.*"
    if piece.startswith("*"):
        return ".*" if piece == "**" else "[^/]*"
    if piece == "?":
        return "[^/]"
    if piece.startswith("[") and len(piece) > 2:
        body = piece[1:-1].replace("\\", "\\\\")
        return f"[{'^' + body[1:] if body.startswith('!') else body}]"
    if piece.startswith("{") and len(piece) > 1:
        return "(?:" + "|".join(_translate(part) for part in piece[1:-1].split(",")) + ")"
    return re.escape(piece)


def walk(root: Path, stop: Event) -> Iterator[str]:
    """Yield every regular file below ``root`` that is not ignored, as a relative path with ``/``.

    Ends early when ``stop`` is set. What cannot be read is left out.
    """
    yield from _walk(str(root), "", _outer_rules(root), stop)


def _walk(root: str, prefix: str, rules: _Rules, stop: Event) -> Iterator[str]:
    if stop.is_set():
        return
    try:
        with os.scandir(f"{root}/{prefix}") as found:
            entries = list(found)
    except OSError:
        return
    names = {entry.name for entry in entries}
    if not names.isdisjoint(IGNORE_FILES) or ".git" in names:
        own = _read_rules(f"{root}/{prefix}".rstrip("/"))
        rules = (*rules, own) if own else rules
    for entry in entries:
        if entry.name == ".git":
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        if not is_folder and not entry.is_file(follow_symlinks=False):
            continue
        if rules and _ignored(f"{root}/{prefix}{entry.name}", is_folder, rules):
            continue
        if is_folder:
            yield from _walk(root, f"{prefix}{entry.name}/", rules, stop)
        else:
            yield prefix + entry.name


def _outer_rules(root: Path) -> _Rules:
    """Return the rules of the folders above ``root``, up to the root of its repository."""
    rules: list[tuple[str, GitIgnoreSpec]] = []
    if not (root / ".git").exists():
        for folder in root.parents:
            own = _read_rules(str(folder).rstrip("/"))
            if own:
                rules.append(own)
            if (folder / ".git").exists():
                break
    return tuple(reversed(rules))


def _read_rules(folder: str) -> tuple[str, GitIgnoreSpec] | None:
    from pathspec import GitIgnoreSpec

    lines: list[str] = []
    for name in (".git/info/exclude", *IGNORE_FILES):
        try:
            lines += Path(folder, name).read_text("utf-8", "replace").removeprefix("\ufeff").splitlines()
        except OSError:
            continue
    patterns = [line for line in lines if line.strip() and not line.startswith("#")]
    return (folder + "/", GitIgnoreSpec.from_lines(patterns)) if patterns else None


def _ignored(path: str, is_folder: bool, rules: _Rules) -> bool:
    """Ask the nearest rules first; the first that say anything decide."""
    for base, spec in reversed(rules):
        verdict = spec.check_file(path[len(base) :] + ("/" if is_folder else "")).include
        if verdict is not None:
            return verdict
    return False
