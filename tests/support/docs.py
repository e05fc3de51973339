"""The scripts in ``docs/`` that write its tables, as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "docs"


def load_script(name: str) -> Any:
    """Return ``docs/NAME.py`` as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
