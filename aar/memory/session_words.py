"""Full-text search over what was said in sessions: prompts, answers, calls and outputs of tools."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final

from pydantic_core import to_json

from aar.memory.event_lines import line_type, parse_line
from aar.memory.session_scan import SessionInfo
from aar.protocol.events import AssistantMessage, Event, SessionEvent, ToolCall, ToolResult, UserMessage
from aar.protocol.messages import ResourceBlock, TextBlock

MARKS: Final = ("\x02", "\x03")
"""Stand around the words that were found, in `Hit.snippet`."""

_MOST_CHARS: Final = 40_000
"""Of one message; what stands behind is not found."""
_MOST_HITS: Final = 2_000
_AROUND: Final = 40
_KINDS: Final = frozenset({"user_message", "assistant_message", "tool_call", "tool_result", "session", None})
_PHRASES: Final = re.compile(r'"([^"]+)"|(\S+)')
# Scripts that put no spaces between words: the tokenizer would take a sentence as one word.
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")


@dataclass(frozen=True, slots=True)
class Hit:
    """A session in which something was found.

    Attributes:
        session: The session.
        seq: Event of the best place.
        kind: ``user``, ``assistant``, ``tool`` or ``title``.
        snippet: The words around it, the found ones between `MARKS`.
        count: How many of its events have it.
    """

    session: SessionInfo
    seq: int
    kind: str
    snippet: str
    count: int

    @property
    def plain(self) -> str:
        """The snippet without marks."""
        snippet = self.snippet
        for mark in MARKS:
            snippet = snippet.replace(mark, "")
        return snippet

    @property
    def pieces(self) -> list[tuple[str, bool]]:
        """The snippet on one line, in pieces, with whether each is a word that was found."""
        begin, end = MARKS
        found = " ".join(self.snippet.split()).replace(end, begin).split(begin)
        return [(piece, number % 2 == 1) for number, piece in enumerate(found) if piece]

    def to_dict(self) -> dict[str, object]:
        """Return the fields of ``aar sessions search --json``."""
        return {
            **self.session.to_dict(),
            "seq": self.seq,
            "kind": self.kind,
            "snippet": self.plain,
            "hits": self.count,
        }


def add_words(database: sqlite3.Connection, session_id: str, file: BinaryIO, length: int) -> None:
    """Index the texts of the next ``length`` bytes of a session file, which are whole lines."""
    next_id = int(database.execute("SELECT coalesce(max(id), 0) FROM passages").fetchone()[0]) + 1
    passages = list(_passages(file, length))
    rows = [(next_id + at, session_id, seq, kind) for at, (seq, kind, _) in enumerate(passages)]
    database.executemany("INSERT INTO passages (id, session_id, seq, kind) VALUES (?, ?, ?, ?)", rows)
    texts = ((next_id + at, text) for at, (_, _, text) in enumerate(passages))
    database.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", texts)


def drop_words(database: sqlite3.Connection, session_id: str) -> None:
    """Forget the texts of a session."""
    database.execute(
        "DELETE FROM words WHERE rowid IN (SELECT id FROM passages WHERE session_id = ?)", (session_id,)
    )
    database.execute("DELETE FROM passages WHERE session_id = ?", (session_id,))


def _passages(file: BinaryIO, length: int) -> Iterator[tuple[int, str, str]]:
    for raw in file:
        if length <= 0:
            return
        length -= len(raw)
        if line_type(raw) not in _KINDS:
            continue
        try:
            event = parse_line(raw)
        except ValueError:
            continue
        kind, text = _text(event)
        if text.strip():
            yield event.seq or 0, kind, text[:_MOST_CHARS].replace("\0", " ")


def _text(event: Event) -> tuple[str, str]:
    match event:
        case UserMessage():
            blocks = (b.text for b in event.content if isinstance(b, TextBlock | ResourceBlock))
            return "user", "\n".join(blocks)
        case AssistantMessage():
            return "assistant", event.content
        case ToolCall():
            given = to_json(event.arguments, inf_nan_mode="null").decode("utf-8", "replace")
            return "tool", f"{event.tool_name} {given}"
        case ToolResult():
            return "tool", event.output
        case SessionEvent():
            return "title", event.title or ""
        case _:
            return "", ""


def find_words(
    database: sqlite3.Connection, query: str, infos: Mapping[str, SessionInfo], limit: int
) -> list[Hit]:
    """Return the sessions of ``infos`` in which ``query`` is found, the best first."""
    phrases = [quoted or word for quoted, word in _PHRASES.findall(query.replace("\0", " "))]
    if not any(re.search(r"\w", phrase) for phrase in phrases):
        return []
    found = _like(database, phrases) if _UNSPACED.search(query) else _match(database, phrases)
    best: dict[str, tuple[int, str, str]] = {}
    counts: dict[str, int] = {}
    for session_id, seq, kind, snippet in found:
        if session_id in infos:
            best.setdefault(session_id, (seq, kind, snippet))
            counts[session_id] = counts.get(session_id, 0) + 1
    hits = (Hit(infos[name], *place, counts[name]) for name, place in best.items())
    return list(itertools.islice(hits, limit))


def _match(database: sqlite3.Connection, phrases: list[str]) -> Iterator[tuple[str, int, str, str]]:
    words = [phrase for phrase in phrases if re.search(r"\w", phrase)]
    # Each word in quotes, so that nothing in it is read as query syntax.
    wanted = " ".join('"' + word.replace('"', '""') + '" *' for word in words)
    statement = (
        "SELECT session_id, seq, kind, snippet(words, 0, ?, ?, '…', 16) FROM words "
        "JOIN passages ON passages.id = words.rowid WHERE words MATCH ? ORDER BY rank LIMIT ?"
    )
    yield from database.execute(statement, (*MARKS, wanted, _MOST_HITS))


def _like(database: sqlite3.Connection, phrases: list[str]) -> Iterator[tuple[str, int, str, str]]:
    """Look through all texts, newest first."""
    wanted = ["%" + re.sub("([%_^])", r"^\1", phrase) + "%" for phrase in phrases]
    where = " AND ".join(["text LIKE ? ESCAPE '^'"] * len(wanted))
    columns = "SELECT session_id, seq, kind, text FROM words JOIN passages ON passages.id = words.rowid"
    statement = f"{columns} WHERE {where} ORDER BY words.rowid DESC LIMIT ?"
    for session_id, seq, kind, text in database.execute(statement, (*wanted, _MOST_HITS)):
        yield session_id, seq, kind, _around(text, phrases[0])


def _around(text: str, phrase: str) -> str:
    at = max(0, text.lower().find(phrase.lower()))
    begin, end = max(0, at - _AROUND), at + len(phrase)
    before, after = ("…" if begin else ""), ("…" if end + _AROUND < len(text) else "")
    marked = MARKS[0] + text[at:end] + MARKS[1]
    return f"{before}{text[begin:at]}{marked}{text[end : end + _AROUND]}{after}"
