"""Formatters and checkers that ``[hooks] after_edit`` names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aar.extensions.hooks_config import from_config
from tests.support.fakes import Turn, call
from tests.support.minds import place

pytestmark = pytest.mark.usefixtures("clean_environment")


def test_a_name_alone_becomes_the_command_for_its_files() -> None:
    _, edits, _ = from_config(
        {"after_edit": ["ruff", {"command": "prettier", "glob": "*.md"}, "make lint"]}, {}
    )
    assert [(edit.command.split()[0], edit.glob) for edit in edits] == [
        ("ruff", "*.py"),
        ("prettier", "*.md"),
        ("make", "*"),
    ]
    _, edits, _ = from_config({"after_edit": "prettier"}, {"after_edit": "prettier"})
    assert {edit.glob for edit in edits} >= {"*.ts", "*.css"}
    assert all(edit.project for edit in edits)


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff is not installed")
async def test_ruff_formats_what_was_written_and_tells_what_it_cannot_mend(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[hooks]\nafter_edit = ["ruff", "no-such-formatter {path}"]\n')
    text = "import os\nx = {  'a':undefined_name }\n"

    def think(ask: object) -> Turn | str:
        return Turn(calls=[call("write_file", path="a.py", content=text)]) if ask.first else "Done."  # type: ignore[attr-defined]

    async with place(tmp_path, think, config_file=config) as here:
        await here.run()
        assert (here.root / "a.py").read_text() == 'x = {"a": undefined_name}\n'
        said = here.mind.asked[-1].said
        assert "was rewritten by" in said
        assert "F821" in said
        assert "no-such-formatter" not in said
        assert [
            event.message for event in here.of("notice") if "no-such-formatter is not there" in event.message
        ]
