"""Finding the line of a key in TOML text that has been parsed already: for messages only."""

from __future__ import annotations

import re

from aar.protocol.late import late_pattern

KeyPath = tuple[str, ...]

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = late_pattern(rf"[ \t]*\[\[?[ \t]*({_KEY})[ \t]*\]")
_ASSIGNMENT = late_pattern(rf"[ \t]*({_KEY})[ \t]*=")
_TOKEN = late_pattern(r'"""|\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]|\\.', re.DOTALL)


def split_key(key: str) -> KeyPath | None:
    """Return the parts of a dotted TOML key, or ``None`` when ``key`` is none."""
    if not re.fullmatch(_KEY, key.strip()):
        return None
    return tuple(_unquote(part) for part in re.findall(_PART, key))


def join_key(path: KeyPath) -> str:
    """Return ``path`` as a dotted TOML key; parts that need quotes get them."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else _quote(part) for part in path)


def _quote(part: str) -> str:
    import json

    return json.dumps(part, ensure_ascii=False)


def _unquote(part: str) -> str:
    if part.startswith("'"):
        return part[1:-1]
    if not part.startswith('"'):
        return part
    import tomllib

    try:
        return str(tomllib.loads(f"v = {part}")["v"])
    except tomllib.TOMLDecodeError:
        return part[1:-1]


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line (from 1) on which each table and key of ``text`` is first written."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    position, number = 0, 1
    while position < len(text):
        header, assignment = _HEADER.match(text, position), _ASSIGNMENT.match(text, position)
        start = position
        if header:
            table = split_key(header.group(1)) or ()
            _note(lines, table, number)
            start = header.end()
        elif assignment:
            _note(lines, table + (split_key(assignment.group(1)) or ()), number)
            start = assignment.end()
        end = _statement_end(text, start)
        number += text.count("\n", position, end)
        position = end
    return lines


def _note(lines: dict[KeyPath, int], path: KeyPath, number: int) -> None:
    for length in range(1, len(path) + 1):
        lines.setdefault(path[:length], number)


def _statement_end(text: str, position: int) -> int:
    """Return where the value that starts at ``position`` ends, its line end included."""
    depth = 0
    while token := _TOKEN.search(text, position):
        position = token.end()
        kind = token.group()
        if kind in ('"""', "'''"):
            position = _string_end(text, position, kind)
        elif kind in "[{":
            depth += 1
        elif kind in "]}":
            depth = max(0, depth - 1)
        elif kind == "\n" and depth == 0:
            return position
    return len(text)


def _string_end(text: str, position: int, quote: str) -> int:
    while (found := text.find(quote, position)) >= 0:
        backslashes = len(text[:found]) - len(text[:found].rstrip("\\"))
        if quote == "'''" or backslashes % 2 == 0:
            return found + 3
        position = found + 1
    return len(text)


def find_line(text: str, path: KeyPath) -> int | None:
    """Return the line of ``path`` in ``text``, or of the nearest table or key around it."""
    lines = key_lines(text)
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None
