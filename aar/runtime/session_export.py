"""A session as a file for people and programs: the same for ``aar sessions export`` and ``/export``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal

from aar.protocol.errors import NotThereError
from aar.protocol.events import Event
from aar.safety.environment import secret_values
from aar.safety.redact import Redactor

Form = Literal["md", "json", "html"]

FORMS: Final[dict[str, Form]] = {
    ".md": "md",
    ".markdown": "md",
    ".json": "json",
    ".html": "html",
    ".htm": "html",
}
"""Forms by the end of a file's name."""


def redactor() -> Redactor:
    """Return what takes secrets out of text: keys by form, and values of secret variables."""
    return Redactor(secret_values(os.environ))


def form_of(path: Path) -> Form | None:
    """Return the form that the name of a file asks for."""
    return FORMS.get(path.suffix.lower())


def document(read: Callable[[], Iterable[Event]], title: str, form: Form) -> Iterable[str]:
    """Return the pieces of an export without secrets.

    Args:
        read: Returns the events from the first on; it is called twice.
        title: Of the session.
        form: What is made.
    """
    from aar.memory.export_html import to_html
    from aar.memory.export_items import heading, items
    from aar.memory.export_text import to_json_document, to_markdown

    clean = redactor()
    top = heading(read(), clean.redact, title)
    if form == "json":
        return to_json_document(top, read(), clean.redact_json)
    parts = items(read(), clean.redact)
    return to_html(top, parts) if form == "html" else to_markdown(top, parts)


def write(path: Path, pieces: Iterable[str]) -> None:
    """Write ``path`` whole or not at all; for the owner only, as the session is.

    Raises:
        UsageError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as stream:
                stream.writelines(pieces)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise NotThereError(f"{path} cannot be written: {reason}.") from error
