"""Every command line of ``docs/contract.toml`` does what the docs say; every command, option and exit code has one."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.state import ExitCode
from tests.cli.support import Ran, aar, call, finish, script, start, stored
from tests.support.docs import load_script

ROOT = Path(__file__).resolve().parents[2]
reference = load_script("generate_reference")
ROWS: list[dict[str, Any]] = reference.CONTRACT["run"]
_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_FILES: dict[str, bytes] = {
    "IMAGE": _PNG,
    "PROMPT": b"Be brief.",
    "SCHEMA": json.dumps(_SCHEMA).encode(),
    "CONFIG": b"[profiles.small.limits]\nsteps = 5\n",
    "MCP": b'{"mcpServers": {}}',
    "PLAN": b"# Plan: Say hello\n\n## 1. Say it\ndone when: true\n\n## 2. Say more\nafter: 1\n",
    "TASKS": b'{"id": "one", "prompt": "say hello"}\n',
    "WRONG": b"[limits]\nsteps = 0\n",
}
_NEW = ("ANSWER", "OUT", "BUNDLE")


def words_of(row: dict[str, Any], folder: Path, project: Path) -> list[str]:
    """Return the arguments of a row, with what it names in place."""
    named: dict[str, str] = {"MODEL": script(folder / "model.json", *row.get("steps", ["Hello there."] * 3))}
    text = row["run"].removeprefix("aar ").removesuffix(" > /dev/full")
    if re.search(r"\bID\b", text) or row.get("session") or row.get("changes"):
        named |= session_of(row, folder, project)
    for name, data in _FILES.items():
        suffix = {"IMAGE": ".png", "CONFIG": ".toml", "WRONG": ".toml", "PLAN": ".md"}.get(name, ".txt")
        (folder / f"{name}{suffix}").write_bytes(data)
        named[name] = str(folder / f"{name}{suffix}")
    (folder / "dir").mkdir()
    named |= {"DIR": str(folder / "dir")} | {name: str(folder / f"new-{name}") for name in _NEW}
    return [named.get(word, word) for word in shlex.split(text)]


def session_of(row: dict[str, Any], folder: Path, project: Path) -> dict[str, str]:
    steps: list[Any] = ["Hello there."]
    if row.get("changes"):
        steps.insert(0, call("write_file", path="new.txt", content="x\n"))
    before = aar(
        "run", "--model", script(folder / "before.json", *steps), "--mode", "edit", "say hello", cwd=project
    )
    assert before.code == 0, before.err
    named = {"ID": stored()[0].stem}
    if row.get("changes"):
        named["CHECKPOINT"] = aar("checkpoints", "list", "--json", cwd=project).lines[-1]["id"]
    return named


def run_row(row: dict[str, Any], words: list[str], project: Path) -> Ran:
    if "signal" in row:
        process = start(*words, cwd=project)
        assert process.stdout is not None
        while f'"type":"{row["after"]}"'.encode() not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(getattr(signal, f"SIG{row['signal']}"))
        return finish(process)
    if row["run"].endswith("> /dev/full"):
        with Path("/dev/full").open("wb") as full:
            return finish(start(*words, cwd=project, stdout=full, stderr=subprocess.PIPE))
    if row.get("real"):
        return finish(start(*words, cwd=project))
    return aar(*words, cwd=project, stdin=row.get("stdin"))


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['code']}-{row['run'][4:60]}" for row in ROWS])
def test_a_documented_command_line_does_what_the_docs_say(
    row: dict[str, Any], project: Path, tmp_path: Path
) -> None:
    if row["run"].endswith("/dev/full") and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    folder = tmp_path / "files"
    folder.mkdir()
    ran = run_row(row, words_of(row, folder, project), project)
    assert ran.code == row["code"], (ran.out[-500:], ran.err)
    if "out" in row:
        assert re.search(row["out"], ran.out), ran.out
    if ran.code in (2, 3) and "json" not in row["run"]:
        assert ran.err.startswith(("aar: ", "Usage: ")) or ran.out, ran.err


def _used() -> dict[tuple[str, ...], set[str]]:
    """Return by command the words that rows give it."""
    used: dict[tuple[str, ...], set[str]] = {}
    for row in ROWS:
        given = shlex.split(row["run"])[1:]
        for words, _ in reference.commands():
            if tuple(given[: len(words)]) == words:
                used.setdefault(words, set()).update(given)
    return used


def test_every_command_and_every_option_is_in_a_row() -> None:
    used = _used()
    missing = [
        " ".join(("aar", *words, flag))
        for words, command in reference.commands()
        for flag in ["", *reference.flags(command)]
        if words not in used or (flag and flag not in used[words])
    ]
    assert missing == [], "add rows to docs/contract.toml, then: python docs/generate_reference.py --write"


def test_every_exit_code_is_in_a_row() -> None:
    assert {int(code) for code in ExitCode} <= {row["code"] for row in ROWS}


def test_the_reference_is_what_its_generator_prints() -> None:
    hint = "run: python docs/generate_reference.py --write"
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), hint
    ci = reference.CI.read_text(encoding="utf-8")
    assert reference.ci_page(ci) == ci, hint


def test_every_variable_that_aar_reads_is_in_the_table() -> None:
    read = re.compile(
        r'(?:environ(?:\.get)?[\[(]|getenv\()\s*"([A-Z][A-Z_]+)"|"([A-Z][A-Z_]+)" (?:not )?in (?:os\.)?environ'
    )
    table = reference.page().split("## Environment variables")[1].split("## Checked")[0]
    told = set(re.findall(r"`([A-Z][A-Z_]+)`", table))
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "aar").rglob("*.py")):
        for groups in read.findall(path.read_text(encoding="utf-8")):
            found[groups[0] or groups[1]] = path
    assert len(found) > 15
    assert {name: str(path) for name, path in found.items() if name not in told} == {}, (
        "docs/generate_reference.py"
    )
    assert os.environ["AAR_HOME"]
