"""docs/commands.md holds what its generator prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from aar.commands.registry import commands

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/commands.md").read_text(encoding="utf-8")


def test_the_tables_are_in_step_with_the_registry() -> None:
    script = ROOT / "docs/generate_commands.py"
    printed = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert printed in PAGE, "run: python docs/generate_commands.py --write"
    for command in commands():
        assert f"| `/{command.name}" in printed


def test_every_example_is_a_command_that_exists() -> None:
    names = {command.name for command in commands()}
    for command in commands():
        if command.example:
            assert command.example.removeprefix("/").split()[0] == command.name
            assert command.name in names
