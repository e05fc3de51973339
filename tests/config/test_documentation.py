"""The page on configuration holds what its generator prints."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from aar.config.load import validate_file
from aar.config.schema import Config
from aar.config.tighten import UNIONS
from aar.config.validate import is_section
from tests.config.helpers import Place

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")


def test_the_tables_are_in_step_with_the_schema() -> None:
    script = ROOT / "docs/generate_configuration.py"
    printed = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert printed in PAGE, "run: python docs/generate_configuration.py --write"
    for name, field in Config.model_fields.items():
        if is_section(field.annotation):
            for key in field.annotation.model_fields:
                assert f"| `{key}` |" in printed or (name, key) == ("mcp", "servers")


def test_the_example_is_a_right_config(place: Place) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert set(tomllib.loads(example)) == {"model", "permissions", "profiles"}
    assert validate_file(place.user(example)) == []


def test_every_list_that_grows_is_told() -> None:
    for section, key in UNIONS:
        assert f"`{section}.{key}`" in PAGE or f"`{key}`" in PAGE
