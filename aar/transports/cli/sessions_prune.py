"""``aar sessions prune``: make room."""

from __future__ import annotations

import json
import re
import time

import click

from aar.protocol.errors import StorageError, UsageError
from aar.runtime import open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import demand_yes

_SPANS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_557_600}
_SIZES = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000, "T": 1_000_000_000_000}


@click.command()
@click.option("--older-than", "age", metavar="AGE", help="Last written longer ago than 12h, 30d, 8w, 1y.")
@click.option("--max-size", "size", metavar="SIZE", help="The oldest, until all take no more than 500M, 1G.")
@click.option("--here", is_flag=True, help="Of this folder only, not of all.")
@click.option("--dry-run", is_flag=True, help="Tell what would go; delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each session that goes.")
def prune(age: str | None, size: str | None, here: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete old sessions, with everything that was stored for them; never one that is open."""
    from aar.memory.session_prune import plan_prune

    if age is None and size is None:
        raise UsageError("Say what may go: --older-than 30d, --max-size 1G, or both.")
    base = open_base()
    store = base.store()
    plan = plan_prune(
        store.list(base.workspace if here else None),
        now=time.time(),
        older_than_s=None if age is None else parse_age(age),
        max_bytes=None if size is None else parse_size(size),
    )
    for item in plan.gone:
        info = item.session
        if as_json:
            fields = {"id": info.id, "title": info.title, "updated": info.updated, "bytes": item.bytes}
            click.echo(json.dumps({**fields, "why": item.why, "deleted": not dry_run}, ensure_ascii=False))
        else:
            title = sanitize(info.title) or "(untitled)"
            click.echo(f"{info.id}  {info.updated[:10]}  {_shown(item.bytes):>8}  {title}")
    for name in plan.open:
        click.echo(f"{name} is open in some process and stays.", err=True)
    freed = sum(item.bytes for item in plan.gone)
    left = f"{plan.kept} of {_shown(plan.kept_bytes)} stay"
    if dry_run or not plan.gone:
        click.echo(f"{len(plan.gone)} sessions of {_shown(freed)} would go; {left}.", err=True)
        return
    if not yes:
        demand_yes(f"Delete {len(plan.gone)} sessions of {_shown(freed)}?")
    gone = 0
    for item in plan.gone:
        try:
            store.delete(item.session.id)
            gone += 1
        except StorageError as error:
            click.echo(str(error), err=True)
    click.echo(f"Deleted {gone} sessions; {left}.", err=True)


def parse_age(text: str) -> float:
    """Return seconds.

    Raises:
        UsageError: It is no age.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdwy])", text.strip().lower())
    if match is None:
        raise UsageError(f"--older-than {text}: give a number with m, h, d, w or y, such as 30d.")
    return float(match[1]) * _SPANS[match[2]]


def parse_size(text: str) -> int:
    """Return bytes.

    Raises:
        UsageError: It is no size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise UsageError(f"--max-size {text}: give a number with K, M or G, such as 1G.")
    return int(float(match[1]) * _SIZES[match[2]])


def _shown(size: int) -> str:
    for unit, factor in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"
