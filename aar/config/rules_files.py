"""The rules that people write for the model: ``AGENTS.md``, or ``CLAUDE.md`` where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aar.config.files import UnusableFileError, read_regular
from aar.protocol.late import late_pattern
from aar.protocol.text import clean_text

NAMES = ("AGENTS.md", "CLAUDE.md")
MAX_BYTES = 32 * 1024
"""Bytes of one file that the model sees."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One file of rules.

    Attributes:
        path: Where it is.
        text: Its text, with a last line that tells so when it was cut.
        truncated: Whether it was cut.
    """

    path: Path
    text: str
    truncated: bool = False


def project_rules(root: Path, cwd: Path, *, config: Path | None = None, trusted: bool) -> list[RuleFile]:
    """Return the rules that hold in ``cwd``; later ones win over earlier ones.

    The user's own come first, then one file of each folder from the project's root down to ``cwd``.
    Links that lead out of the project and whatever is no regular file are passed over.

    Args:
        root: Root of the project.
        cwd: Folder of work; outside of ``root`` only the root's own rules count.
        config: The user's config folder.
        trusted: Whether the project is trusted; without it only the user's own are read.
    """
    found: list[RuleFile] = []
    if config is not None and (rules := _read(config / NAMES[0], None)):
        found.append(rules)
    if not trusted:
        return found
    root = root.resolve()
    for folder in _folders(root, cwd.resolve()):
        for name in NAMES:
            if rules := _read(folder / name, root):
                found.append(rules)
                break
    return found


def folder_rules(folder: Path, root: Path) -> RuleFile | None:
    """Return the rules of one folder of the trusted project at ``root``, which is resolved."""
    return next((rules for name in NAMES if (rules := _read(folder / name, root))), None)


def _folders(root: Path, cwd: Path) -> Iterator[Path]:
    yield root
    if cwd.is_relative_to(root):
        folder = root
        for part in cwd.relative_to(root).parts:
            folder /= part
            yield folder


def _read(path: Path, inside: Path | None) -> RuleFile | None:
    try:
        data = read_regular(path, MAX_BYTES, inside=inside)
    except UnusableFileError:
        return None
    if not data or not data.strip():
        return None
    truncated = len(data) > MAX_BYTES
    text = clean_text(data[:MAX_BYTES].decode("utf-8-sig", "ignore" if truncated else "replace"))
    text = _with_imports(text, path, inside or path.parent.resolve())
    truncated = truncated or len(text.encode()) > MAX_BYTES
    text = text.encode()[:MAX_BYTES].decode("utf-8", "ignore")
    if truncated:
        text += f"\n[{path.name} is longer: only its first {MAX_BYTES // 1024} KiB are shown here]\n"
    return RuleFile(path, text, truncated)


_IMPORT = late_pattern(r"(?<![\w`@/.])@(?P<path>(?:\./|\.\./|~/|/)?[\w./-]*\w\.(?:md|mdc|txt))\b")
_MAX_IMPORTS = 5
"""How deep imported files import others."""


def _with_imports(text: str, path: Path, inside: Path, above: tuple[Path, ...] = ()) -> str:
    """Return ``text`` with each file that it names as ``@path`` put behind it; outside of code only.

    Files outside of ``inside`` are not read, also through links.
    """
    if "@" not in text or len(above) >= _MAX_IMPORTS:
        return text
    chain, found = (*above, path.resolve()), list[str]()
    for name in dict.fromkeys(match["path"] for match in _IMPORT.finditer(_without_code(text))):
        file = path.parent / Path(name).expanduser()
        try:
            data = None if file.resolve() in chain else read_regular(file, MAX_BYTES, inside=inside)
        except (UnusableFileError, OSError, RuntimeError):
            continue
        if data:
            imported = clean_text(data[:MAX_BYTES].decode("utf-8-sig", "replace"))
            found.append(f"From {name}:\n\n{_with_imports(imported, file, inside, chain)}")
    return "\n\n".join([text.rstrip("\n"), *found]) + "\n" if found else text


def _without_code(text: str) -> str:
    return re.sub(r"```.*?(?:```|\Z)|`[^`\n]*`", "", text, flags=re.DOTALL)
