"""A small repository, and a model in it that says hello."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import script


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "notes.txt").write_text("remember the milk\n")
    return folder


@pytest.fixture
def hello(tmp_path: Path) -> str:
    return script(tmp_path / "hello.json", "Hello there.", after="last")
