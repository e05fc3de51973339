"""``aar sessions export``: a session for people, for programs, or as a test."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from aar.protocol.errors import ConfigurationError, StorageError, UsageError
from aar.runtime import open_base

_FORMS = {".md": "md", ".markdown": "md", ".json": "json", ".html": "html", ".htm": "html"}


@click.command()
@click.argument("session_id", metavar="ID")
@click.option(
    "--format", "form", type=click.Choice(["md", "json", "html"]), help="Default: by FILE, else md."
)
@click.option(
    "--scenario", is_flag=True, help="A scenario for the scripted provider: a session becomes a test."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write FILE, not standard output."
)
def export(session_id: str, form: str | None, scenario: bool, output: Path | None) -> None:
    """Write a session as Markdown, JSON or one HTML file, without keys. ID may be shortened."""
    if scenario and form is not None:
        raise UsageError("Give --scenario or --format, not both.")
    store = open_base().store()
    try:
        found = store.find(session_id)
    except StorageError as error:
        raise ConfigurationError(str(error)) from error
    form = form or (_FORMS.get(output.suffix.lower()) if output is not None else None) or "md"
    pieces = _scenario(store, found) if scenario else _document(store, found, form)
    if output is None or str(output) == "-":
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    _write(output, pieces)
    click.echo(f"Wrote {output}.", err=True)


def _redactor() -> Any:
    from aar.safety.environment import secret_values
    from aar.safety.redact import Redactor

    return Redactor(secret_values(os.environ))


def _scenario(store: Any, session_id: str) -> Iterator[str]:
    from aar.memory.export_scenario import to_scenario

    plain = _redactor().redact_json(to_scenario(store.read(session_id)))
    yield json.dumps(plain, ensure_ascii=False, indent=1) + "\n"


def _document(store: Any, session_id: str, form: str) -> Iterable[str]:
    from aar.memory.export_html import to_html
    from aar.memory.export_items import heading, items
    from aar.memory.export_text import to_json_document, to_markdown
    from aar.memory.session_scan import scan_file

    redactor = _redactor()
    title = scan_file(session_id, store.path(session_id)).title
    top = heading(store.read(session_id), redactor.redact, title)
    if form == "json":
        return to_json_document(top, store.read(session_id), redactor.redact_json)
    parts = items(store.read(session_id), redactor.redact)
    return to_html(top, parts) if form == "html" else to_markdown(top, parts)


def _write(path: Path, pieces: Iterable[str]) -> None:
    """Write ``path`` whole or not at all; for the owner only, as the session is."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as stream:
                stream.writelines(pieces)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error
    sys.stdout.flush()
