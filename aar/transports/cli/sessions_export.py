"""``aar sessions export``: a session for people, for programs, or as a test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from aar.protocol.errors import UsageError
from aar.runtime import open_base
from aar.runtime.session_export import Form, document, form_of, redactor, write


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
def export(session_id: str, form: Form | None, scenario: bool, output: Path | None) -> None:
    """Write a session as Markdown, JSON or one HTML file, without keys. ID may be shortened."""
    if scenario and form is not None:
        raise UsageError("Give --scenario or --format, not both.")
    base = open_base()
    store, found = base.store(), base.session_id(session_id)
    form = form or (form_of(output) if output is not None else None) or "md"
    pieces = _scenario(store, found) if scenario else _document(store, found, form)
    if output is None or str(output) == "-":
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    write(output, pieces)
    click.echo(f"Wrote {output}.", err=True)


def _scenario(store: Any, session_id: str) -> Iterator[str]:
    from aar.memory.export_scenario import to_scenario

    plain = redactor().redact_json(to_scenario(store.read(session_id)))
    yield json.dumps(plain, ensure_ascii=False, indent=1) + "\n"


def _document(store: Any, session_id: str, form: Form) -> Iterable[str]:
    from aar.memory.session_scan import scan_file

    title = scan_file(session_id, store.path(session_id)).title
    return document(lambda: store.read(session_id), title, form)
