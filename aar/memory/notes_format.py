"""Notes as files: Markdown with front matter that a person can read, change and compare."""

from __future__ import annotations

import re
import unicodedata
from datetime import date, datetime
from pathlib import Path
from typing import Any

from aar.config.front_matter import Document, words
from aar.protocol.errors import UsageError
from aar.protocol.notes import Note, NoteScope

MAX_NOTE_CHARS = 20_000
"""Characters of one note; a longer one is a document and belongs into the project."""
MAX_TITLE_CHARS = 120
MAX_TAGS = 12
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_KNOWN = ("title", "tags", "created", "updated", "source")


def slug(title: str) -> str:
    """Return the name of a note with this title: ASCII letters, digits and ``-``.

    Raises:
        UsageError: Nothing of the title is left.
    """
    folded = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "-", folded).strip("-")[:60].strip("-")
    if name:
        return name
    marks = "-".join(f"{ord(letter):x}" for letter in title if letter.isalnum())[:60].strip("-")
    if not marks:
        raise UsageError("A note needs a title with letters in it.")
    return f"note-{marks}"


def checked_name(name: str) -> str:
    """Return ``name`` if a note may be called so.

    Raises:
        UsageError: It may not.
    """
    bare = name.strip().removesuffix(".md")
    if not _NAME.fullmatch(bare):
        raise UsageError(f"{name[:60]!r} is no name of a note; use small letters, digits and '-'.")
    return bare


def note_of(document: Document, scope: NoteScope) -> Note:
    """Return the note that a file holds; without front matter its first line is the title."""
    meta = dict(document.meta)
    title = " ".join(str(meta.pop("title", None) or "").split())
    body = document.body.strip()
    if not title:
        first = next((line for line in body.splitlines() if line.strip()), document.path.stem)
        title = first.lstrip("# ").strip()
    created, updated = _date(meta.pop("created", "")), _date(meta.pop("updated", ""))
    tags, source = words(meta.pop("tags", ())), str(meta.pop("source", None) or "")
    return Note(
        name=document.path.stem,
        scope=scope,
        title=title[:MAX_TITLE_CHARS],
        body=body,
        tags=tuple(dict.fromkeys(tag.lower() for tag in tags)),
        created=created,
        updated=updated or created or _written(document.path),
        source=source,
        path=str(document.path),
        more=meta,
    )


def _date(value: object) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()[:10]
    match = _DATE.match(str(value or ""))
    return match[0] if match is not None else ""


def _written(path: Path) -> str:
    try:
        return date.fromtimestamp(path.stat().st_mtime).isoformat()
    except OSError:
        return ""


def render(note: Note) -> str:
    """Return the file of a note."""
    import yaml

    fields: dict[str, Any] = {"title": note.title, "tags": list(note.tags)}
    dumped = yaml.safe_dump(
        fields, allow_unicode=True, sort_keys=False, default_flow_style=None, width=10_000
    ).strip()
    lines = [*dumped.splitlines(), f"created: {note.created}", f"updated: {note.updated}"]
    if note.source:
        lines.append(f"source: {yaml_word(note.source)}")
    if note.more:
        extra = {key: value for key, value in note.more.items() if key not in _KNOWN}
        lines += yaml.safe_dump(extra, allow_unicode=True, sort_keys=False, width=10_000).strip().splitlines()
    return "\n".join(["---", *lines, "---", "", note.body.strip(), ""])


def yaml_word(text: str) -> str:
    """Return ``text`` as a quoted YAML string."""
    import json

    return json.dumps(text, ensure_ascii=False)


def checked(note: Note) -> Note:
    """Return a note with its fields in order.

    Raises:
        UsageError: It is empty or too long.
    """
    from dataclasses import replace

    title = " ".join(note.title.split())
    if not title or not note.body.strip():
        raise UsageError("A note needs a title and a text.")
    if len(title) > MAX_TITLE_CHARS:
        raise UsageError(f"The title has {len(title)} characters; use at most {MAX_TITLE_CHARS}.")
    if len(note.body) > MAX_NOTE_CHARS:
        raise UsageError(
            f"The note has {len(note.body):,} characters and may have {MAX_NOTE_CHARS:,}; keep its essence."
        )
    tags = dict.fromkeys("-".join(tag.lower().split()) for tag in note.tags if tag.strip())
    name = checked_name(note.name) if note.name else slug(title)
    body = note.body.replace("\r\n", "\n").strip()
    return replace(note, name=name, title=title, body=body, tags=tuple(tags)[:MAX_TAGS])
