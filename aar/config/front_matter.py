"""Markdown files with front matter: settings between two lines of ``---``, then text.

Other assistants write such files for agents, skills and commands, and not all of them are sound YAML: a
description with a colon in it is common. So plain lines are read as they stand, and YAML only decides
where a file has more than plain lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aar.config.files import UnusableFileError, read_regular
from aar.protocol.late import late_pattern
from aar.protocol.text import clean_text

MAX_BYTES = 256 * 1024
"""Bytes of one file that are read."""
_LINE = late_pattern(r"(?P<key>[A-Za-z_][\w.-]*):(?:\s+(?P<value>.*?))?\s*$")
_PLAIN = late_pattern(r"[^\s\[\]{}&*!|>'\"%@`#,-][^#]*")
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None}


@dataclass(frozen=True, slots=True)
class Document:
    """A file with front matter.

    Attributes:
        path: Where it is.
        meta: Its settings, by name.
        body: Its text.
        truncated: Whether it was longer than what is read.
    """

    path: Path
    meta: dict[str, Any]
    body: str
    truncated: bool = False


def read_document(path: Path, *, inside: Path | None = None) -> Document | None:
    """Read a file; ``None`` when there is none.

    Args:
        path: The file.
        inside: A resolved folder that it must lie in, links followed.

    Raises:
        UnusableFileError: It is not a readable regular file inside of ``inside``.
    """
    data = read_regular(path, MAX_BYTES, inside=inside)
    if data is None:
        return None
    text = clean_text(data[:MAX_BYTES].decode("utf-8-sig", "replace")).replace("\r\n", "\n")
    meta, body = split(text)
    return Document(path, meta, body, len(data) > MAX_BYTES)


def split(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter and the rest of ``text``; without front matter all of it is text."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return {}, text
    for place, line in enumerate(lines[1:], 1):
        if line.rstrip() in ("---", "..."):
            return parse(lines[1:place]), "\n".join(lines[place + 1 :]).strip("\n")
    return {}, text


def parse(lines: list[str]) -> dict[str, Any]:
    """Return the settings that ``lines`` tell; lines that cannot be understood are left out."""
    found: dict[str, Any] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line)
        value = match["value"] if match is not None else None
        if match is None or value is None or not (_PLAIN.fullmatch(value) or value.startswith("-")):
            return _yaml(lines)
        found[match["key"]] = _scalar(value)
    return found


def _yaml(lines: list[str]) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loaded = yaml.load("\n".join(lines), Loader=loader)  # noqa: S506 - it is a safe loader
    except (yaml.YAMLError, ValueError, RecursionError):
        return _lenient(lines)
    if not isinstance(loaded, dict):
        return {}
    return {str(key): value for key, value in cast("dict[Any, Any]", loaded).items()}


def _lenient(lines: list[str]) -> dict[str, Any]:
    """Read ``key: value`` lines; what is indented below a key goes on with its text."""
    found: dict[str, Any] = {}
    key = ""
    for line in lines:
        match = _LINE.match(line) if line[:1].strip() else None
        if match is not None:
            key, value = match["key"], match["value"] or ""
            found[key] = _scalar(value) if value not in ("|", ">", "|-", ">-") else ""
        elif key and line.strip():
            found[key] = f"{found[key]}\n{line.strip()}".strip()
    return found


def _scalar(value: str) -> Any:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    if value.lower() in _CONSTANTS:
        return _CONSTANTS[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def words(value: object) -> tuple[str, ...]:
    """Return a list of names, written as a list or as text with commas or spaces between them."""
    if isinstance(value, str):
        return tuple(part for part in _names(value) if part)
    if isinstance(value, list | tuple):
        return tuple(str(item).strip() for item in cast("list[Any]", value) if str(item).strip())
    return ()


def _names(text: str) -> list[str]:
    """Split at commas and spaces outside of brackets: ``Bash(git add *), Read`` are two."""
    found, depth, start = list[str](), 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign in ", \t\n" and depth <= 0:
            found.append(text[start:place].strip())
            start = place + 1
    return [*found, text[start:].strip()]


def markdown_files(folder: Path, *, inside: Path | None = None, limit: int = 500) -> list[Document]:
    """Read all ``*.md`` below ``folder``, in order of names; those that cannot be read are passed over."""
    found: list[Document] = []
    try:
        paths = sorted(folder.rglob("*.md"))[:limit] if folder.is_dir() else []
    except OSError:
        return []
    for path in paths:
        try:
            document = read_document(path, inside=inside)
        except UnusableFileError:
            continue
        if document is not None:
            found.append(document)
    return found
