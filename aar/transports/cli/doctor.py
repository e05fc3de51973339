"""``aar doctor``: one line for each thing that aar needs, with what to do about it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from aar import __version__
from aar.protocol.state import ExitCode
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console, Style
from aar.transports.cli.doctor_checks import Check, examine
from aar.transports.cli.options import base_options, take_runtime_options

__all__ = ["Check", "doctor", "examine"]

_STYLES: dict[str, Style] = {"ok": "green", "warn": "yellow", "fail": "red"}
_HERE = "-"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.option(
    "--online", is_flag=True, help="Also ask the server of each configured model; nothing is spent."
)
@click.option(
    "--bundle",
    is_flag=False,
    flag_value=_HERE,
    metavar="[FILE]",
    help="Also write an archive for bug reports, without secrets (aar-doctor-….tar.gz).",
)
@base_options
def doctor(as_json: bool, online: bool, bundle: str | None, **values: Any) -> int:
    """Check this installation; the exit code is 0 when aar is usable, else 3."""
    options = take_runtime_options(values)
    checks = list(examine(options))
    if online:
        from aar.transports.cli.doctor_online import examine_online

        checks += examine_online(options)
    usable = all(check.status != "fail" for check in checks)
    fields: dict[str, Any] = {
        "usable": usable,
        "version": __version__,
        "checks": [asdict(check) for check in checks],
    }
    written = None
    if bundle is not None:
        from aar.transports.cli.doctor_bundle import write_bundle

        written = write_bundle(None if bundle == _HERE else Path(bundle), options, fields)
    if as_json:
        if written is not None:
            fields["bundle"] = str(written)
        click.echo(json.dumps(fields, ensure_ascii=False))
    else:
        _tell(checks, usable)
        if written is not None:
            click.echo(f"{written} is written: look into it before you send it to anybody.")
    return ExitCode.OK if usable else ExitCode.CONFIGURATION


def _tell(checks: list[Check], usable: bool) -> None:
    console = Console(sanitize)
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = console.styled(f"{check.status:4}", _STYLES[check.status], sys.stdout)
        fix = f" -> {check.fix}" if check.fix else ""
        line = sanitize(f"{check.name:{width}}  {check.detail}{fix}", keep_newlines=False)
        console.raw(f"{mark}  {line}\n")
    console.out("aar is usable." if usable else "aar is not usable yet: see the lines that begin with fail.")
