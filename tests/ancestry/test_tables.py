"""The tables of what aar descends from name modules, commands and tests that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from aar.commands.registry import find
from aar.transports.cli.main import _COMMANDS
from tests.support.docs import FOLDER

_ROOT = FOLDER.parent
PAGES = sorted((FOLDER / "ancestry").glob("*.md"))
ABSENT = "not in aar"
"""What stands in the column ``where`` of a row whose last cell is the reason."""


def rows(page: Path) -> Iterator[list[str]]:
    """Yield the cells of each row of the tables whose last columns are ``where`` and ``test``."""
    header: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not header:
            header = cells
        elif header[-2:] == ["where", "test"] and set(line) - set("|-: "):
            assert len(cells) == len(header), (page.name, line)
            yield cells


def quoted(page: Path) -> set[str]:
    """Return what stands between backticks."""
    return set(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")))


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return the names of the tests of a file."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_named_test_exists(page: Path) -> None:
    named = [name.split("::") for name in quoted(page) if "::" in name]
    assert [f"{file}::{name}" for file, name in named if name not in names_in(_ROOT / file)] == []
    assert named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_named_file_exists(page: Path) -> None:
    files = {name for name in quoted(page) if re.match(r"(?:aar|docs|tests|themes)/[\w./-]+$", name)}
    assert sorted(name for name in files if not (_ROOT / name).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_named_command_exists(page: Path) -> None:
    names = quoted(page)
    typed = {match[1] for name in names if (match := re.match(r"/([a-z][\w-]*)(?: |$)", name))}
    assert sorted(name for name in typed if find(name) is None) == []
    run = {match[1] for name in names if (match := re.match(r"aar ([a-z][\w-]*)", name))}
    assert sorted(run - set(_COMMANDS)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_row_names_a_test_or_the_reason_why_there_is_nothing(page: Path) -> None:
    found = list(rows(page))
    for *_, where, shown in found:
        assert "::test_" in shown or (where == ABSENT and len(shown) > 20), (page.name, where, shown)
    assert found
