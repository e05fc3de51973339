"""A better title than the first line of the first prompt, by a small model when there is time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aar.core.session import Session
from aar.protocol.errors import AarError
from aar.protocol.events import SessionEvent, UserMessage
from aar.protocol.messages import TextBlock

Ask = Callable[[str], Awaitable[str]]
"""Sends one question to a model and returns its answer."""

_PROMPT_CHARS: Final = 2000
_TITLE_CHARS: Final = 60
_EVENTS_LOOKED_AT: Final = 200
_MARKS: Final = "\"'`*#“”„«» "
_QUESTION: Final = (
    "Write a title of at most seven words for a work session that began with the request below. "
    "Answer with the title alone, in the language of the request.\n\n<request>\n{request}\n</request>"
)


async def improve_title(session: Session, ask: Ask) -> str | None:
    """Give ``session`` a title by a model, unless somebody named it; the first prompt must be there.

    Args:
        session: Open for writing; a ``rename`` event is stored.
        ask: The model; its failure leaves the title as it is.

    Returns:
        The new title; ``None`` when nothing was changed.
    """
    request = _first_request(session)
    if not request:
        return None
    try:
        answer = await ask(_QUESTION.format(request=request))
    except AarError:
        return None
    title = clean_title(answer)
    if not title or title == session.title:
        return None
    session.rename(title)
    return title


def _first_request(session: Session) -> str:
    """Return the first prompt; empty when there is none, or the session has a name."""
    request = ""
    for number, event in enumerate(session.events()):
        if isinstance(event, SessionEvent) and event.title:
            return ""
        if not request and isinstance(event, UserMessage) and event.agent_id == "main":
            request = "\n".join(block.text for block in event.content if isinstance(block, TextBlock))
        if number > _EVENTS_LOOKED_AT:
            break
    return request[:_PROMPT_CHARS].strip()


def clean_title(answer: str) -> str:
    """Return the title in a model's answer: its first line without quotes and marks, not too long."""
    line = next((line for line in answer.splitlines() if line.strip()), "")
    line = " ".join(line.split()).strip(_MARKS).removeprefix("Title:").strip(_MARKS).rstrip(".")
    return line if len(line) <= _TITLE_CHARS else line[:_TITLE_CHARS].rsplit(" ", 1)[0]
