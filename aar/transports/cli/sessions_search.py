"""``aar sessions search``: find what was said."""

from __future__ import annotations

import json

import click

from aar.protocol.errors import UsageError
from aar.runtime import open_base


@click.command()
@click.argument("words", metavar="QUERY", nargs=-1, required=True)
@click.option("--all", "everywhere", is_flag=True, help="In all folders, not in this one only.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Sessions at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def search(words: tuple[str, ...], everywhere: bool, limit: int, as_json: bool) -> None:
    """Find sessions by words of prompts, answers, calls and outputs, the best first.

    All words must stand in one message; "several words" in quotes are found side by side.
    """
    query = " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in words)
    if not any(character.isalnum() for character in query):
        raise UsageError("Give a word to search for.")
    base = open_base()
    hits = base.store().search(query, None if everywhere else base.workspace, limit)
    if as_json:
        for hit in hits:
            click.echo(json.dumps(hit.to_dict(), ensure_ascii=False))
        return
    from aar.safety.sanitize import sanitize

    if not hits:
        more = "" if everywhere else " in this folder; --all searches everywhere"
        click.echo(f"Nothing was found{more}.", err=True)
    for hit in hits:
        info = hit.session
        shown = "".join(
            click.style(sanitize(piece), bold=True) if marked else sanitize(piece)
            for piece, marked in hit.pieces
        )
        many = f", {hit.count} places" if hit.count > 1 else ""
        click.echo(
            f"{info.id}  {info.updated[:16].replace('T', ' ')}  {sanitize(info.title) or '(untitled)'}"
        )
        click.echo(f"    {hit.kind}, event {hit.seq}{many}: {shown}")
