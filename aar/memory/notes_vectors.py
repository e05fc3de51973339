"""Vectors of notes beside their words in the index, and both orders joined into one."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import mul
from typing import Final

from aar.protocol.notes import Embedder, Note, NoteHit

SCHEMA: Final = "CREATE TABLE vectors (stamp TEXT PRIMARY KEY, model TEXT, vector BLOB)"
_TEXT_CHARS: Final = 2000
_RANK: Final = 60
"""Of reciprocal rank fusion: how little it matters who is first (Cormack and others, 2009)."""


def stored_vectors(
    database: sqlite3.Connection, stamps: Mapping[str, str], notes: Mapping[str, Note], embedder: Embedder
) -> dict[str, Sequence[float]]:
    """Return the vector of each note by its path; those that are missing are made and stored.

    Args:
        database: The index.
        stamps: What tells the words of each note apart, by path.
        notes: All notes by path.
        embedder: Makes vectors; those of another one are forgotten.

    Raises:
        AarError: The embedder failed.
        sqlite3.Error: The index cannot be used.
    """
    rows = database.execute("SELECT stamp, vector FROM vectors WHERE model = ?", (embedder.name,))
    known: dict[str, Sequence[float]] = {stamp: _numbers(blob) for stamp, blob in rows}
    missing = {stamp: notes[path] for path, stamp in stamps.items() if stamp not in known}
    made = embedder.embed([_text(note) for note in missing.values()]) if missing else []
    fresh = dict(zip(missing, made, strict=True))
    gone = known.keys() - set(stamps.values())
    if fresh or gone:
        _store(database, embedder.name, fresh, gone)
    known |= fresh
    return {path: known[stamp] for path, stamp in stamps.items()}


def _store(
    database: sqlite3.Connection, model: str, fresh: Mapping[str, Sequence[float]], gone: set[str]
) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        database.execute("DELETE FROM vectors WHERE model <> ?", (model,))
        database.executemany("DELETE FROM vectors WHERE stamp = ?", [(stamp,) for stamp in gone])
        blobs = [(stamp, model, array("f", vector).tobytes()) for stamp, vector in fresh.items()]
        database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", blobs)
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _numbers(blob: bytes) -> array[float]:
    numbers = array("f")
    numbers.frombytes(blob[: len(blob) - len(blob) % numbers.itemsize])
    return numbers


def _text(note: Note) -> str:
    return f"{note.title}\n{' '.join(note.tags)}\n{note.body}"[:_TEXT_CHARS]


def likeness(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors of length 1; 0 where they are of different models."""
    return sum(map(mul, one, other)) if len(one) == len(other) else 0.0


def joined(words: Sequence[NoteHit], near: Sequence[NoteHit]) -> list[NoteHit]:
    """Return what two orders found as one, by reciprocal rank: what stands high in either comes first."""
    points: dict[str, float] = {}
    hits: dict[str, NoteHit] = {}
    for order in (words, near):
        for place, hit in enumerate(order, 1):
            path = hit.note.path
            points[path] = points.get(path, 0.0) + 1 / (_RANK + place)
            hits.setdefault(path, hit)
    found = [replace(hit, score=points[path]) for path, hit in hits.items()]
    return sorted(found, key=lambda hit: (-hit.score, hit.note.name))
