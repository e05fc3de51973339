"""``aar audit``: was a session changed afterwards?"""

from __future__ import annotations

import json

import click

from aar.observability.audit_log import audit_key, verify
from aar.protocol.state import ExitCode
from aar.runtime import open_base
from aar.transports.cli.groups import NearestGroup


@click.group(cls=NearestGroup)
def audit() -> None:
    """Check that no session was changed afterwards."""


@audit.command("verify")
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--head", metavar="HEX", help="The head that an earlier check printed must be the present one.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def verify_(session_id: str | None, head: str | None, as_json: bool) -> int:
    """Compare session ID, or the newest one of this folder, with the hashes kept while it was written."""
    base = open_base()
    found = base.session_id(session_id)
    result = verify(base.store().path(found), audit_key(base.paths.data))
    problem = result.problem
    if problem is None and head is not None and head.lower() != result.head:
        problem = "the head is another one than was given"
    if as_json:
        fields = {"session_id": found, "ok": problem is None, "lines": result.lines, "head": result.head}
        click.echo(json.dumps({**fields, "problem": problem, "line": result.line}))
    elif problem is None:
        click.echo(f"{found}: {result.lines} lines as they were written; head {result.head}")
    else:
        click.echo(f"{found}: {problem}; {result.lines} lines before it are as they were written")
    return ExitCode.OK if problem is None else ExitCode.UNFINISHED
