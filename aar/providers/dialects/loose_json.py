"""JSON as models write it: where a value ends, and reading it with unambiguous repairs only."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from aar.protocol.late import late_pattern

_TOKEN = late_pattern(r'"(?:[^"\\]++|\\.)*+"|\'(?:[^\'\\]++|\\.)*+\'|["\'{}\[\]]', re.DOTALL)
_REPAIR = late_pattern(
    r'"(?:[^"\\]++|\\.)*+"|\'(?:[^\'\\]++|\\.)*+\'|,(?=\s*[}\]])|\b(?:True|False|None)\b', re.DOTALL
)
_ESCAPE = late_pattern(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null", ",": ""}
_CLOSER = {"{": "}", "[": "]"}


def value_end(text: str, start: int = 0, stop: int | None = None) -> int | None:
    """Return the index behind the object or array that opens at ``start``, or ``None`` if it is open."""
    depth = 0
    for match in _TOKEN.finditer(text, start, len(text) if stop is None else stop):
        mark = match[0]
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if depth <= 0:
                return match.end()
        elif len(mark) == 1:
            return None
    return None


def missing_closers(text: str, start: int = 0, stop: int | None = None) -> str | None:
    """Return the brackets that would close the value, ``""`` if none, ``None`` inside an open string."""
    stack: list[str] = []
    for match in _TOKEN.finditer(text, start, len(text) if stop is None else stop):
        mark = match[0]
        if mark in "{[":
            stack.append(_CLOSER[mark])
        elif mark in "}]":
            if not stack or stack.pop() != mark:
                return None
            if not stack:
                return ""
        elif len(mark) == 1:
            return None
    return "".join(reversed(stack))


def loads(text: str) -> Any:
    """Read a JSON value, repairing what can mean one thing only.

    Repaired: line breaks inside strings, single quotes, Python's constants, trailing commas, unknown
    escapes such as the one of ``d``, and brackets that are missing or too many at the very end.

    Raises:
        ValueError: It is no JSON, or there is more than one way to read it.
    """
    text = text.strip()
    end = value_end(text) if text[:1] in _CLOSER else None
    if end is not None and not text[end:].strip("}] \t\r\n"):
        text = text[:end]
    elif end is None and text[:1] in _CLOSER:
        text += missing_closers(text) or ""
    try:
        return _strict(text)
    except ValueError:
        return _strict(_REPAIR.sub(_repaired, text))


def _strict(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _repaired(match: re.Match[str]) -> str:
    mark = match[0]
    if mark[0] not in "\"'":
        return _PYTHON_WORDS[mark]
    body = _ESCAPE.sub(_escape, mark[1:-1])
    if mark[0] == "'":
        body = re.sub(r'(\\.)|"', lambda quote: quote[1] or '\\"', body, flags=re.DOTALL)
    return f'"{body}"'


def _escape(match: re.Match[str]) -> str:
    code = match[1]
    if code == "'":
        return "'"
    return match[0] if code in '"\\/bfnrt' or len(code) > 1 else "\\" + match[0]
