"""Where an answer names a file, and which file of the project it means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from aar.protocol.late import late_pattern

_PATH = r"(?:\.{0,2}/)?[\w@.+-]+(?:[/\\][\w@.+-]+)*"
_EXTENSION = late_pattern(r"\.[A-Za-z][A-Za-z0-9]{0,7}$|^\.[a-z][\w.-]+$")
_BARE_NAMES = frozenset({"makefile", "dockerfile", "license", "readme", "procfile", "justfile", "gemfile"})
_PRODUCTS = frozenset({"node.js", "vue.js", "next.js", "react.js", "express.js", "d3.js", "asp.net"})
LEAD = late_pattern(
    r"^(?:(?:#{1,6}|[-*+>]|\d+[.)])\s+)*[*_]{0,3}"
    r"(?:(?:updated|new|modified|complete)\s+)?(?:(?:file\s?name|file\s?path|file|path)\s*:\s*)?[*_]{0,3}\s*",
    re.IGNORECASE,
)
_TRAIL = late_pattern(
    r"\s*(?:\((?:updated|new|new file|modified|fixed|changed|complete|created|full)\))?"
    r"[*_]{0,3}\s*:?\s*[*_]{0,3}$",
    re.IGNORECASE,
)
_COMMENT = late_pattern(
    rf"^\s*(?:#|//|--|;|%|/\*+|<!--)\s*(?:file(?:\s?name|\s?path)?\s*:\s*)?({_PATH})\s*(?:\*/|-->)?\s*$",
    re.IGNORECASE,
)
_TOLD = late_pattern(
    r"\b(?:updated?|new|complete|full|entire|whole|corrected|fixed|modified|changed?|rewritten|revised|create|"
    r"add|write|content|contents|becomes)\b",
    re.IGNORECASE,
)
_MENTION = late_pattern(rf"`([^`\n]+)`|(?<![\w./-])({_PATH})")
_EXAMPLE_PREFIX = late_pattern(r"^/?(?:path/to/|your[-_]?(?:project|repo)/|path/)+", re.IGNORECASE)
_DEFINITION = late_pattern(
    r"^\s*(?:export\s+|default\s+|pub\s+|static\s+|public\s+|async\s+)*"
    r"(?:def|class|function|fn|func|const|let|var|struct|enum|type|interface|trait|module)\s+(\w+)",
    re.MULTILINE,
)


class FilesContext(Protocol):
    """What a parser of whole-file answers needs to know of the project."""

    def known_paths(self) -> frozenset[str]:
        """Return all paths of the project, relative, with forward slashes."""
        ...

    def content(self, path: str) -> str | None:
        """Return the present text of ``path``, or ``None`` when there is no such text file."""
        ...


@dataclass(frozen=True, slots=True)
class NoFiles:
    """A project without files."""

    def known_paths(self) -> frozenset[str]:
        return frozenset()

    def content(self, path: str) -> str | None:
        return None


def is_path(text: str, known: frozenset[str]) -> bool:
    """Tell whether ``text`` can only be a path: known, with a folder, or with an extension."""
    if text in known:
        return True
    if not re.fullmatch(_PATH, text) or not re.search(r"[A-Za-z]", text):
        return False
    name = re.split(r"[/\\]", text)[-1]
    return "/" in text.strip("/") or bool(_EXTENSION.search(name)) or name.lower() in _BARE_NAMES


def path_line(line: str, known: frozenset[str]) -> str | None:
    """Return the path when ``line`` is a path and decoration, and nothing else."""
    text = line.strip()
    if text in known:
        return text
    text = LEAD.sub("", text, count=1)
    text = _TRAIL.sub("", text, count=1).strip()
    quoted = re.fullmatch(r"[\"'`]([^\"'`]+)[\"'`]:?", text)
    if quoted and text[0] == "`" and ("." in quoted[1] or "/" in quoted[1] or quoted[1] in known):
        path = _TRAIL.sub("", quoted[1]).strip()
        return path if is_path(path.replace(" ", "_"), known) or path in known else None
    text = quoted[1] if quoted else text
    if text.lower() in _PRODUCTS:
        return None
    return text if is_path(text, known) else None


def comment_path(line: str, known: frozenset[str]) -> str | None:
    """Return the path when ``line`` is a comment that holds a path alone, or a known path alone."""
    match = _COMMENT.match(line)
    if match and is_path(match[1], known):
        return match[1]
    return line.strip() if "." in line and line.strip() in known else None


def info_path(info: str, known: frozenset[str]) -> str | None:
    """Return the path that stands behind a fence's marks (``python calc.py``, ``python:calc.py``)."""
    words = [word.strip("\"'`{}") for word in re.split(r"[\s:=,]+", info)]
    return next((word for word in words if word in known or (is_path(word, known) and "." in word)), None)


def sentence_path(line: str, known: frozenset[str]) -> tuple[str, bool] | None:
    """Return the one path that a sentence before a block names, and whether it says that it is its content.

    Only a sentence that ends with a colon can introduce a block.
    """
    text = line.strip().strip("*_").strip()
    if not text.endswith(":"):
        return None
    named = {(match[1] or match[2]).strip(".,:") for match in _MENTION.finditer(text[:-1])}
    paths = [name for name in named if is_path(name, known) and not name.startswith("//")]
    if len(paths) != 1:
        return None
    return paths[0], bool(_TOLD.search(text))


def definitions(text: str) -> frozenset[str]:
    """Return the names that ``text`` defines, in any common language."""
    return frozenset(_DEFINITION.findall(text))


def plausible(content: str, current: str | None) -> bool:
    """Tell whether ``content`` may be a new version of ``current``: a shared definition, or shared lines."""
    if current is None:
        return False
    if not current.strip() or definitions(content) & definitions(current):
        return True
    new = {line.strip() for line in content.splitlines() if line.strip()}
    old = {line.strip() for line in current.splitlines() if line.strip()}
    return 3 * len(new & old) >= max(1, min(len(new), len(old)))


def resolve_path(written: str, files: FilesContext, content: str | None = None) -> str:
    """Return the project's path for a path that a model wrote.

    The example's own folders and folders that do not exist are taken off, and missing ones are put before,
    where exactly one known file can be meant and ``content`` (if given) may be that file's. Everything else
    is returned as written: new files, and paths that the policy has to judge.
    """
    known = files.known_paths()
    path = written.strip()
    if path in known:
        return path
    path = path.replace("\\", "/").removeprefix("./")
    folders = {str(parent) for one in known for parent in PurePosixPath(one).parents}
    trimmed = path
    if "path" not in folders:
        trimmed = _EXAMPLE_PREFIX.sub("", path) or path
    if trimmed in known:
        return trimmed

    def fits(candidate: str) -> bool:
        return content is None or plausible(content, files.content(candidate))

    parts = PurePosixPath(trimmed).parts
    if parts and parts[0] not in folders:
        for start in range(1, len(parts)):
            shorter = "/".join(parts[start:])
            if shorter in known:
                return shorter if fits(shorter) else trimmed
    wanted = trimmed.lower()
    meant = [one for one in known if one.endswith("/" + trimmed)] or [
        one for one in known if one.lower() == wanted
    ]
    return meant[0] if len(meant) == 1 and fits(meant[0]) else trimmed
