"""Colours for source code, by pygments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

from aar.transports.tui.transcript.text import Run

MAX_CHARS = 60_000
"""Longer code is shown without colours."""

_MAX_S = 0.15
"""Seconds after which the rest of some code stays without colours: a few lexers are slow with odd text."""

_ALIASES = {
    "shell": "bash",
    "sh": "bash",
    "zsh": "bash",
    "console": "console",
    "py": "python",
    "jsonc": "json",
    "text": "",
    "txt": "",
    "plain": "",
    "plaintext": "",
}
_ROLES = (
    ("Comment", "syn.comment"),
    ("Keyword", "syn.keyword"),
    ("Operator.Word", "syn.keyword"),
    ("Literal.String", "syn.string"),
    ("Literal.Number", "syn.number"),
    ("Name.Function", "syn.name"),
    ("Name.Class", "syn.name"),
    ("Name.Decorator", "syn.name"),
    ("Name.Tag", "syn.name"),
    ("Name.Namespace", "syn.name"),
    ("Name.Attribute", "syn.builtin"),
    ("Name.Builtin", "syn.builtin"),
    ("Name.Exception", "syn.builtin"),
    ("Generic.Inserted", "add"),
    ("Generic.Deleted", "del"),
    ("Generic.Heading", "syn.name"),
    ("Generic.Subheading", "syn.name"),
    ("Generic.Prompt", "syn.comment"),
    ("Error", "syn.error"),
)


@lru_cache(maxsize=64)
def lexer_for(language: str) -> Any:
    """Return the lexer of a language by name; ``None`` when there is none."""
    from pygments import lexers
    from pygments.util import ClassNotFound

    words = language.strip().lower().split()
    name = words[0] if words else ""
    name = _ALIASES.get(name, name)
    if not name or len(name) > 40:
        return None
    by_name: Callable[..., Any] = vars(lexers)["get_lexer_by_name"]
    try:
        return by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=256)
def language_of(path: str) -> str:
    """Return the name of the language of a file by its name; empty when unknown."""
    from pygments.lexers import find_lexer_class_for_filename

    try:
        found: Any = find_lexer_class_for_filename(path.rpartition("/")[2])
    except Exception:
        # Some file names make pygments ask its plug-ins; none of them may stop the screen.
        return ""
    return str(found.aliases[0]) if found is not None and found.aliases else ""


@cache
def _role(kind: Any) -> str:
    name = str(kind).removeprefix("Token.")
    return next((role for prefix, role in _ROLES if name.startswith(prefix)), "")


def _tokens(lexer: Any, code: str, until: float) -> Iterator[tuple[Any, str]]:
    for number, token in enumerate(lexer.get_tokens(code)):
        if number % 64 == 63 and time.perf_counter() > until:
            return
        yield token


def highlight(code: str, language: str, base: str = "") -> list[list[Run]]:
    """Return the lines of ``code`` as runs.

    Args:
        code: Text that was cleaned.
        language: As written behind a fence, or from `language_of`.
        base: Role of everything, to which the colours are added.
    """
    lexer = lexer_for(language) if language and len(code) <= MAX_CHARS else None
    if lexer is None:
        return [[(line, base)] if line else [] for line in code.split("\n")]
    lines: list[list[Run]] = [[]]
    taken, until = 0, time.perf_counter() + _MAX_S
    for kind, text in _tokens(lexer, code, until):
        taken += len(text)
        colour = _role(kind)
        role = f"{base} {colour}".strip() if colour else base
        first, *rest = text.split("\n")
        if first:
            lines[-1].append((first, role))
        lines.extend([(piece, role)] if piece else [] for piece in rest)
    if taken < len(code):
        first, *rest = code[taken:].split("\n")
        lines[-1].append((first, base))
        lines.extend([(piece, base)] if piece else [] for piece in rest)
    wanted = code.count("\n") + 1
    return lines[:wanted] if len(lines) >= wanted else [[(line, base)] for line in code.split("\n")]
