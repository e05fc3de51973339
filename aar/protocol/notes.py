"""Notes: what is kept for later sessions, as data, and what a tool may do with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from aar.protocol.usage import Usage

NoteScope = Literal["user", "project"]
"""``user``: in all projects; ``project``: a file of the project, which others who work on it get too."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note.

    Attributes:
        name: Its file's name without the suffix; what it is called by.
        scope: Where it lies.
        title: One line.
        body: Markdown.
        tags: Words to find it by.
        created: Date, ``YYYY-MM-DD``.
        updated: Date of the last change.
        source: The event that it came from, ``SESSION_ID#SEQ``; empty: a person wrote it.
        path: The file.
        more: Fields of the front matter that aar does not know; they are kept.
    """

    name: str
    scope: NoteScope
    title: str
    body: str
    tags: tuple[str, ...] = ()
    created: str = ""
    updated: str = ""
    source: str = ""
    path: str = ""
    more: dict[str, Any] = field(default_factory=dict[str, Any])


class Embedder(Protocol):
    """Makes vectors of texts: the nearer two of them, the more alike is what the texts say."""

    @property
    def name(self) -> str:
        """Which model it is; vectors of another one cannot be compared with its own."""
        ...

    @property
    def least(self) -> float:
        """Likeness (cosine) from which a note belongs to a prompt without a word in common."""
        ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text; may take seconds.

        Raises:
            AarError: It failed.
        """
        ...

    def take_usage(self) -> Usage:
        """Return what a server was sent since this was asked last; nothing where there is no server."""
        ...


@dataclass(frozen=True, slots=True)
class NoteHit:
    """A note that was found.

    Attributes:
        note: The note.
        score: How well it fits; higher is better.
        snippet: The words around the best place.
        warnings: What is doubtful about it: old, contradicted, naming files that are gone.
    """

    note: Note
    score: float
    snippet: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PastWords:
    """A place in an earlier session.

    Attributes:
        reference: ``SESSION_ID#SEQ``, for `NoteKeeper.past`.
        title: Of the session.
        date: When the session was last written, ``YYYY-MM-DD``.
        kind: Who said it: ``user``, ``assistant``, ``tool`` or ``title``.
        snippet: The words around it.
    """

    reference: str
    title: str
    date: str
    kind: str
    snippet: str


NoteAsk = Callable[[str, Sequence[str]], Awaitable[str | None]]
"""``await ask(question, options)``: the user's answer, or ``None`` when nobody can answer."""


class NoteKeeper(Protocol):
    """The notes of a session, as one tool call reaches them."""

    async def search(self, query: str, tags: Sequence[str], limit: int) -> list[NoteHit]:
        """Return the notes that fit ``query`` best; all with ``tags`` where it is empty."""
        ...

    async def search_sessions(self, query: str, limit: int) -> list[PastWords]:
        """Return places of earlier sessions of this project in which all words of ``query`` stand."""
        ...

    async def read(self, name: str) -> NoteHit:
        """Return a note.

        Raises:
            AarError: There is none of this name.
        """
        ...

    async def past(self, reference: str) -> str:
        """Return what was said around a place of an earlier session.

        Raises:
            AarError: There is no such place.
        """
        ...

    async def propose(self, note: Note, ask: NoteAsk) -> str:
        """Let the user decide whether ``note`` is kept; return what came of it, for the model.

        Args:
            note: ``name`` empty: made from its title. A note of the same name is replaced.
            ask: Asks the user.

        Raises:
            AarError: It may not be kept at all: it holds a secret, or notes are not written here.
        """
        ...
