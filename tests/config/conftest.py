from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.helpers import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    return Place(root, home)
