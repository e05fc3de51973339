"""Undo as users meet it: through the runtime and on the command line, in real processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aar.protocol.errors import UsageError
from aar.runtime.conversation import Conversation
from aar.runtime.opening import open_runtime
from tests.checkpoints.support import git
from tests.cli.support import aar


def scenario(path: Path) -> str:
    steps = [
        {"tool_calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "two\n"}}]},
        {"tool_calls": [{"name": "bash", "arguments": {"command": "echo new > b.txt"}}]},
        {"text": "Done."},
    ]
    path.write_text(json.dumps({"steps": steps}))
    return f"scripted/{path}"


def project(tmp_path: Path) -> Path:
    root = tmp_path / "w"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.txt").write_text("one\n")
    return root


async def test_the_runtime_keeps_files_and_a_conversation_takes_them_back(tmp_path: Path) -> None:
    root = project(tmp_path)
    runtime = open_runtime(cwd=root, model=scenario(tmp_path / "s.json"), mode="unsafe")
    conversation = Conversation(runtime, runtime.open_session())
    try:
        conversation.submit("go")
        with pytest.raises(UsageError, match="under way"):
            _ = conversation.undo
        await conversation.wait()
        events = list(conversation.session.events())
        change = next(e for e in events if e.type == "tool_result").file_changes[0]
        store = conversation.undo.store
        assert await store.read([change.before, change.after]) == {
            change.before: b"one\n",
            change.after: b"two\n",
        }
        assert [diff.path for diff in await conversation.undo.changes_since()] == ["a.txt", "b.txt"]
        report = await conversation.undo.undo(2)
        assert report.restored == ("a.txt", "b.txt")
        assert (root / "a.txt").read_text() == "one\n"
        assert not (root / "b.txt").exists()
        assert not store.folder.is_relative_to(root)
        assert store.folder.stat().st_mode & 0o077 == 0
    finally:
        await conversation.aclose()
    assert git(root, "status", "--short") == "?? a.txt\n"


async def test_checkpoints_can_be_turned_off(tmp_path: Path) -> None:
    root = project(tmp_path)
    off = ("checkpoints.enabled=false",)
    runtime = open_runtime(cwd=root, model=scenario(tmp_path / "s.json"), mode="unsafe", sets=off)
    conversation = Conversation(runtime, runtime.open_session())
    try:
        conversation.submit("go")
        await conversation.wait()
        assert not any(event.type == "checkpoint" for event in conversation.session.events())
        assert not (Path(os.environ["AAR_HOME"]) / "checkpoints").exists()
        with pytest.raises(UsageError, match="enabled"):
            _ = conversation.undo
    finally:
        await conversation.aclose()


def test_the_command_line_undoes_refuses_keeps_both_and_redoes(tmp_path: Path) -> None:
    root = project(tmp_path)
    assert aar("undo", cwd=root).code == 3
    run = aar("run", "--mode", "unsafe", "--model", scenario(tmp_path / "s.json"), "go", cwd=root)
    assert run.code == 0, run.err
    undone = json.loads(aar("undo", "--json", cwd=root).out)
    assert undone["restored"] == ["b.txt"]
    (root / "a.txt").write_text("mine\n")
    refused = aar("undo", cwd=root)
    assert refused.code == 1
    assert "+mine" in refused.out
    assert (root / "a.txt").read_text() == "mine\n"
    assert aar("undo", "--keep-both", cwd=root).code == 0
    assert (root / "a.txt").read_text() == "one\n"
    assert (root / "a.txt.yours").read_text() == "mine\n"
    assert aar("redo", cwd=root).code == 0
    assert (root / "a.txt").read_text() == "mine\n"
    listed = [json.loads(line) for line in aar("checkpoints", "list", "--json", cwd=root).out.splitlines()]
    assert {item["kind"] for item in listed} == {"auto", "undo", "redo"}
    assert aar("checkpoints", "restore", listed[-1]["id"], "--force", cwd=root).code == 0
    assert (root / "a.txt").read_text() == "one\n"
    assert aar("checkpoints", "restore", "nonsense", cwd=root).code == 3
