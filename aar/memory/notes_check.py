"""What is doubtful about notes: old ones, ones that name files that are gone, ones that contradict others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from aar.memory.notes_index import telling_words
from aar.protocol.notes import Note

Kind = Literal["old", "gone", "twice", "conflict", "similar", "secret"]

_PATH: Final = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.\w{1,8})(?::\d+)?`")
_FACT: Final = re.compile(
    r"^[-*\s]*(?P<what>[^:=`]{3,60}?)\s*(?::|=|\bis\b|\bare\b)\s+(?P<value>\S.{0,160}?)[.;]?\s*$"
)
_MOST_FACTS: Final = 60
_ALIKE: Final = 0.8
_SHARED: Final = 0.6


@dataclass(frozen=True, slots=True)
class NoteProblem:
    """Something doubtful about a note.

    Attributes:
        note: The note.
        kind: ``old``, ``gone`` (a file it names), ``twice`` (the name in both places), ``conflict``,
            ``similar`` or ``secret``.
        sentence: What it is.
    """

    note: Note
    kind: Kind
    sentence: str


def check_notes(
    notes: Sequence[Note], root: Path, stale_days: int, redact: Callable[[str], str] = lambda text: text
) -> list[NoteProblem]:
    """Return all that is doubtful about ``notes``, each pair once."""
    found: list[NoteProblem] = []
    for at, note in enumerate(notes):
        found += _alone(note, root, stale_days)
        if redact(f"{note.title}\n{note.body}") != f"{note.title}\n{note.body}":
            found.append(NoteProblem(note, "secret", "holds what looks like a secret; take it out"))
        for other in notes[at + 1 :]:
            found += _against(note, other)
    return found


def doubts(note: Note, notes: Sequence[Note], root: Path, stale_days: int) -> list[str]:
    """Return what is doubtful about one note, in words for people and models."""
    found = list(_alone(note, root, stale_days))
    for other in notes:
        if other.path != note.path:
            found += _conflicts(note, other)
    return [item.sentence for item in found]


def similar_notes(note: Note, notes: Sequence[Note]) -> list[Note]:
    """Return the notes that say much the same as ``note`` under another name or in the other place."""
    return [
        other
        for other in notes
        if (other.name, other.scope) != (note.name, note.scope) and _alike(note, other)
    ]


def _alone(note: Note, root: Path, stale_days: int) -> Iterator[NoteProblem]:
    days = _age(note.updated)
    if stale_days and days is not None and days > stale_days:
        yield NoteProblem(note, "old", f"not changed since {note.updated}, so it may no longer hold")
    missing = [path for path in dict.fromkeys(_PATH.findall(note.body)) if not (root / path).exists()]
    if missing and (note.scope == "project" or len(missing) < len(_PATH.findall(note.body))):
        yield NoteProblem(note, "gone", f"names files that are gone: {', '.join(missing[:5])}")


def _age(updated: str) -> int | None:
    try:
        return (date.today() - date.fromisoformat(updated)).days
    except ValueError:
        return None


def _against(note: Note, other: Note) -> Iterator[NoteProblem]:
    """Yield what is wrong between two notes."""
    yield from _conflicts(note, other)
    if note.name != other.name and _alike(note, other):
        yield NoteProblem(note, "similar", f"says much the same as {other.name}; keep one of them")


def _conflicts(note: Note, other: Note) -> Iterator[NoteProblem]:
    """Yield where two notes cannot both be right."""
    if note.name == other.name and note.body != other.body:
        yield NoteProblem(note, "twice", f"there is another note {other.name} for the {other.scope}")
    for what, one, two in _contradictions(note, other):
        later = other.updated > note.updated
        which = f"; {other.name} is newer" if later else ""
        yield NoteProblem(
            note, "conflict", f"says {what}: {one}, but {other.name} ({other.updated}) says {two}{which}"
        )


def _alike(note: Note, other: Note) -> bool:
    """Tell whether two notes have nearly the same title, or text."""
    words, others = _words_of(note.title), _words_of(other.title)
    if len(words) > 1 and len(words & others) >= _ALIKE * len(words | others):
        return True
    long = max(len(note.body), len(other.body))
    if abs(len(note.body) - len(other.body)) > (1 - _ALIKE) * long:
        return False
    # Few pairs get as far as the exact comparison, which is slow.
    mine, theirs = _words_of(note.body), _words_of(other.body)
    if len(mine & theirs) < _SHARED * len(mine | theirs):
        return False
    return SequenceMatcher(None, note.body[:2000], other.body[:2000], autojunk=False).ratio() >= _ALIKE


def _contradictions(note: Note, other: Note) -> Iterator[tuple[str, str, str]]:
    """Yield what both notes tell of (``port: 80``, ``the port is 80``), with what each says of it."""
    mine, theirs = _facts_of(note.title, note.body), _facts_of(other.title, other.body)
    for key in mine.keys() & theirs.keys():
        (what, one), (_, two) = mine[key], theirs[key]
        if one.casefold() != two.casefold():
            yield what, one, two


@lru_cache(maxsize=4096)
def _words_of(text: str) -> frozenset[str]:
    return frozenset(telling_words(text))


@lru_cache(maxsize=4096)
def _facts_of(title: str, body: str) -> dict[frozenset[str], tuple[str, str]]:
    """Return what a note says, by the telling words of its subject."""
    found: dict[frozenset[str], tuple[str, str]] = {}
    for line in body.splitlines():
        match = _FACT.match(line)
        if match is None or len(found) >= _MOST_FACTS:
            continue
        what = " ".join(match["what"].split())
        subject = frozenset(telling_words(what))
        if not subject or len(subject) > 5:
            continue
        if len(subject) == 1:
            # "port: 80" means little without what it is the port of.
            subject |= _words_of(title)
        found.setdefault(
            subject, (what.removeprefix("The ").removeprefix("the "), match["value"].strip("`'\" "))
        )
    return found
