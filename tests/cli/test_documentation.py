"""docs/cli.md names what exists, and only that."""

from __future__ import annotations

import re
from pathlib import Path

import click

from aar.transports.cli.main import cli
from tests.cli.test_commands import commands

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_option_of_run_is_in_the_table_and_no_other() -> None:
    run = cli.get_command(click.Context(cli), "run")
    assert run is not None
    there = {name for param in run.params for name in param.opts if name.startswith("-")}
    table = PAGE.split("### Options")[1].split("### What is written")[0]
    told = {
        name
        for row in re.findall(r"^\| (`-.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(-[-a-z]*)", row)
    }
    assert told == there


def test_every_command_is_named() -> None:
    for words in commands(cli):
        last = words[-1]
        assert re.search(rf"`(aar {' '.join(words)}|{last})\b", PAGE), words
