"""``aar trust``: what this folder would let in, and whether it may."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aar.config.trust import TrustStore
from aar.runtime import open_base
from aar.runtime.trust import TrustQuestion, describe, forget_trust, trust_folder
from aar.safety.sanitize import sanitize


@click.command()
@click.option("--show", is_flag=True, help="Only list what trust would let in.")
@click.option("--forget", is_flag=True, help="Take trust back.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object; changes nothing.")
@click.option("--cwd", type=click.Path(path_type=Path), help="Which folder; by default the present one.")
def trust(show: bool, forget: bool, as_json: bool, cwd: Path | None) -> int:
    """Trust this folder's own config, rules, hooks, servers and skills, as they are now."""
    if forget and (show or as_json):
        raise click.UsageError("Give --forget alone.")
    base = open_base(cwd=cwd)
    if forget:
        gone = forget_trust(base)
        click.echo(f"{base.workspace}: {'no longer trusted' if gone else 'was not trusted'}.")
        return 0
    question = describe(base)
    trusted = bool(question.items) and TrustStore(base.paths).is_trusted(base.workspace, question.found)
    if as_json:
        click.echo(json.dumps(_fields(question, trusted)))
        return 0
    _list(question)
    if show or not question.items:
        click.echo(f"{base.workspace}: {_state(question, trusted)}.")
        return 0
    trust_folder(base, question)
    click.echo(f"{base.workspace}: trusted as listed; any change asks again.")
    return 0


def _fields(question: TrustQuestion, trusted: bool) -> dict[str, object]:
    items = [{"kind": item.kind, "path": item.path, "summary": item.summary} for item in question.items]
    return {
        "root": str(question.root),
        "trusted": trusted,
        "possible": question.possible,
        "changed": list(question.changed),
        "items": items,
    }


def _list(question: TrustQuestion) -> None:
    for item in question.items:
        mark = "  (changed)" if item.path in question.changed else ""
        click.echo(sanitize(f"{item.kind:12} {item.path}  {item.summary}{mark}", keep_newlines=False))
    present = {item.path for item in question.items}
    for path in question.changed:
        if path not in present:
            click.echo(sanitize(f"{'gone':12} {path}", keep_newlines=False))


def _state(question: TrustQuestion, trusted: bool) -> str:
    if not question.items:
        return "there is nothing to trust"
    if trusted:
        return "trusted"
    return "not trusted any more, it has changed" if question.changed else "not trusted"
