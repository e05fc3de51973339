"""Judges the blocks of a whole-file answer: complete file, patch, search/replace, or nothing usable."""

from __future__ import annotations

import json
import re

from aar.protocol.late import late_pattern
from aar.providers.dialects.file_blocks import parses_as_python

_PREFIX = r"^\s*(?:#|//|--|;|%|/\*+|\*|<!--|\{/\*)"
_ELISION = late_pattern(
    rf"{_PREFIX}\s*(?:\[|\()?(?:"
    r"(?:\.\.\.|…).*\b(?:rest|remain\w*|existing|unchanged|previous|other|same|code|functions?|here|before|above)\b.*|"
    r".*\b(?:rest|remain\w*|existing|unchanged|previous|other)\b.*(?:\.\.\.|…).*|"
    r"(?:the\s+)?(?:rest|remainder)\s+of\s+(?:the|your|this)\b.*|"
    r"(?:the\s+)?(?:existing|remaining|other|previous)\s+(?:code|functions?|methods?|imports?|content|lines|tests|"
    r"implementation)s?\b.{0,30}|"
    r".{0,40}\b(?:remains?|stays?|is|are|kept)\s+(?:unchanged|the\s+same|as\s+(?:is|before))\b.{0,20}|"
    r"same\s+as\s+(?:before|above|original)\b.*)",
    re.IGNORECASE,
)
_DOTS = late_pattern(r"^(\s*)(?:#|//|--|;|/\*|<!--)?\s*(?:\.\.\.|…)\s*(?:\*/|-->)?\s*$")
_PROSE_SUFFIXES = (".md", ".markdown", ".txt", ".rst", ".mdx", ".tex")
_SENTENCE = late_pattern(
    r"^\s*(?:\*\*|[-*]\s+)?[A-Z][\w'’,`()*/ -]+[a-z)`*]?[.:!]?\s*(?:`[^`]+`.*)?[.:!]\**\s*$"
)
_CONFLICT = late_pattern(
    r"<{5,}[ \t]*(?:SEARCH|ORIGINAL)?[^\n]*\n(.*?)^={5,}[ \t]*\r?\n(.*?)^>{5,}[^\n]*\n?",
    re.DOTALL | re.MULTILINE,
)
_LONG_FILE = 40
_KEPT_SHARE = 0.4


def elided_line(content: str, current: str | None, path: str) -> str | None:
    """Return a line that stands for left-out text, unless the file has that very line already."""
    old = {line.strip() for line in (current or "").splitlines()}
    before = ""
    for line in content.splitlines():
        if line.strip() and line.strip() not in old and _elides(line, before, path):
            return line.strip()
        before = line.strip() or before
    return None


def _elides(line: str, before: str, path: str) -> bool:
    if path.lower().endswith(_PROSE_SUFFIXES):
        return False
    if _ELISION.match(line):
        return True
    dots = _DOTS.match(line)
    if dots is None:
        return False
    if not path.endswith((".py", ".pyi")) or line.strip() not in ("...", "…"):
        return True
    # In Python "..." is a body: it may stand behind a colon or a docstring, and nowhere else.
    return not before.endswith((":", '"""', "'''", "@overload")) or not dots[1]


def drops_most(content: str, current: str | None) -> tuple[int, int] | None:
    """Return the numbers of lines (before, after) when most of a long file would go."""
    old = len((current or "").splitlines())
    new = len(content.splitlines())
    return (old, new) if old >= _LONG_FILE and new < old * _KEPT_SHARE else None


def same_text(content: str, current: str | None) -> bool:
    """Tell whether a write would change nothing but line ends, a BOM or the final newline."""
    return current is not None and _plain(content) == _plain(current)


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").rstrip("\n")


def without_prose(content: str, path: str) -> str:
    """Leave sentences at the beginning and end out, if the file is valid without them and only then."""
    if not path.endswith((".py", ".json")) or _is_valid(content, path):
        return content
    lines = content.splitlines(keepends=True)
    first, last = 0, len(lines)
    while first < last and (not lines[first].strip() or _SENTENCE.match(lines[first])):
        first += 1
    for start in {0, first}:
        end = last
        while end > start and (not lines[end - 1].strip() or _SENTENCE.match(lines[end - 1])):
            end -= 1
            if _is_valid(text := "".join(lines[start:end]), path):
                return text.rstrip("\n") + "\n"
        if start and _is_valid(text := "".join(lines[start:]), path):
            return text
    return content


def _is_valid(text: str, path: str) -> bool:
    if not text.strip():
        return False
    if path.endswith(".py"):
        return parses_as_python(text)
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def search_replace(body: str) -> list[tuple[str, str]] | None:
    """Return (search, replace) of a body that is nothing but search/replace blocks."""
    pairs = [(match[1], match[2]) for match in _CONFLICT.finditer(body)]
    return pairs if pairs and not _CONFLICT.sub("", body).strip() else None


def looks_like_patch(body: str, language: str) -> bool:
    """Tell whether a block is a patch instead of a file."""
    if language in {"diff", "patch", "udiff"}:
        return True
    start = body.lstrip("\n")
    return start.startswith("*** Begin Patch") or bool(
        re.match(r"(?:diff --git [^\n]*\n(?:index [^\n]*\n)?)?--- [^\n]+\n\+\+\+ [^\n]+\n@@", start)
    )


def patch_of(body: str, path: str | None) -> str | None:
    """Return a patch that names its file, or ``None`` when ``body`` is no complete patch."""
    if body.lstrip().startswith("*** Begin Patch"):
        return body.strip() + "\n" if body.rstrip().endswith("*** End Patch") else None
    has_header = re.search(r"^--- [^\n]+\n\+\+\+ [^\n]+$", body, re.MULTILINE)
    if not has_header and path is None:
        return None
    hunks = re.split(r"^@@[^\n]*\n", body, flags=re.MULTILINE)[1:]
    if not hunks or not all(_is_hunk(hunk) for hunk in hunks):
        return None
    return body if has_header else f"--- a/{path}\n+++ b/{path}\n{body[body.index('@@') :]}"


def _is_hunk(hunk: str) -> bool:
    lines = re.split(r"^(?:diff --git|--- )", hunk, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    return all(line[:1] in " +-\\" for line in lines) and any(line[:1] in "+-" for line in lines if line)
