"""Undo, redo and rewind over real runs: what the session did goes back, what the user did stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.protocol.errors import UsageError
from tests.checkpoints.support import bash, tree, world_of, write
from tests.support.fakes import Turn, call, check_messages

ENGINES = pytest.mark.parametrize("engine", ["plain", "git"])


@ENGINES
async def test_undo_and_redo_of_steps(tmp_path: Path, engine: str) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    (root / "gone.txt").write_text("keep me\n")
    start = tree(root)
    turns = [
        write("a.txt", "two\n"),
        bash("rm gone.txt; mkdir -p d/e; echo x > d/e/new; chmod +x a.txt"),
        "Done.",
    ]
    async with world_of(root, turns, engine) as (world, undo, checkpoints):
        await world.run()
        await checkpoints.aclose()
        end = tree(root)
        report = await undo.undo()
        assert report.done
        assert not report.conflicts
        assert not report.problems
        assert (root / "gone.txt").read_text() == "keep me\n"
        assert not (root / "d").exists()
        assert (root / "a.txt").read_text() == "two\n"
        check_messages(world.session.messages())
        assert len(world.session.messages()) == 3
        second = await undo.undo()
        assert second.done
        assert tree(root) == start
        assert len(world.session.messages()) == 1
        with pytest.raises(UsageError, match="nothing to undo"):
            await undo.undo()
        assert (await undo.redo()).done
        assert (await undo.redo()).done
        assert tree(root) == end
        assert len(world.session.messages()) == 6
        check_messages(world.session.messages())
        with pytest.raises(UsageError, match="nothing to redo"):
            await undo.redo()
        assert [e.kind for e in world.of("checkpoint")] == ["auto", "auto", "undo", "undo", "redo", "redo"]
        assert [e.scope for e in world.of("rewind")] == ["both"] * 4


@ENGINES
async def test_a_file_that_the_user_changed_since_is_not_overwritten(tmp_path: Path, engine: str) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    async with world_of(root, [bash("echo two > a.txt; echo new > b.txt"), "Done."], engine) as (
        world,
        undo,
        kept,
    ):
        await world.run()
        await kept.aclose()
        (root / "a.txt").write_text("mine\n")
        (root / "other.txt").write_text("mine too\n")
        refused = await undo.undo()
        assert not refused.done
        assert [c.path for c in refused.conflicts] == ["a.txt"]
        assert refused.conflicts[0].diff.new == b"mine\n"
        assert refused.conflicts[0].diff.old == b"one\n"
        assert (root / "a.txt").read_text() == "mine\n"
        assert (root / "b.txt").exists()
        both = await undo.undo(on_conflict="keep_both")
        assert both.done
        assert both.beside == {"a.txt": "a.txt.yours"}
        assert both.left_alone == ("other.txt",)
        assert (root / "a.txt").read_text() == "one\n"
        assert (root / "a.txt.yours").read_text() == "mine\n"
        assert (root / "other.txt").read_text() == "mine too\n"
        assert not (root / "b.txt").exists()
        assert (await undo.redo()).done
        assert (root / "a.txt").read_text() == "mine\n"
        assert (root / "b.txt").exists()
        forced = await undo.undo(on_conflict="force")
        assert forced.done
        assert (root / "a.txt").read_text() == "one\n"


@ENGINES
async def test_files_alone_conversation_alone_and_a_prompt(tmp_path: Path, engine: str) -> None:
    root = tmp_path / "w"
    async with world_of(root, [write("a", "1"), "One.", write("b", "2"), "Two."], engine) as (world, undo, _):
        await world.run("first")
        await world.run("second")
        before = world.session.messages()
        report = await undo.undo(scope="files")
        assert report.done
        assert not (root / "b").exists()
        assert world.session.messages()[: len(before)] == before
        assert "b" in str(world.session.messages()[-1].content[-1])
        assert (await undo.redo()).done
        assert (root / "b").read_text() == "2"
        assert (await undo.undo(scope="conversation", prompts=1)).done
        assert (root / "b").exists()
        assert len(world.session.messages()) == 4
        assert (await undo.redo()).done
        prompts = undo.history().prompts
        assert [place.text for place in prompts] == ["first", "second"]
        assert (await undo.rewind_to(prompts[0].seq)).done
        assert tree(root) == {}
        assert world.session.messages() == []
        await world.run("third")
        check_messages(world.session.messages())
        with pytest.raises(UsageError):
            await undo.redo()


async def test_changes_are_shown_by_hunks_and_taken_back_one_by_one(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    lines = [f"line {n}\r\n" for n in range(40)]
    (root / "a.txt").write_bytes("".join(lines).encode())
    lines[3], lines[30] = "changed 3\r\n", "changed 30\r\n"
    command = "sed -i 's/^line 3\\r/changed 3\\r/; s/^line 30\\r/changed 30\\r/' a.txt; printf 'a\\0b' > bin"
    async with world_of(root, [bash(command), "Done."]) as (world, undo, _):
        await world.run()
        text, binary = sorted(await undo.changes_since(), key=lambda diff: diff.path)
        assert binary.binary
        assert binary.action == "create"
        assert [(h.old_start, h.old, h.new) for h in text.hunks] == [
            (4, (b"line 3\r\n",), (b"changed 3\r\n",)),
            (31, (b"line 30\r\n",), (b"changed 30\r\n",)),
        ]
        left = await undo.revert_hunks("a.txt", [0], shown=text)
        assert left is not None
        assert len(left.hunks) == 1
        lines[3] = "line 3\r\n"
        assert (root / "a.txt").read_bytes() == "".join(lines).encode()
        assert await undo.revert_hunks("bin", []) is None
        assert not (root / "bin").exists()


async def test_what_cannot_be_undone_is_listed(tmp_path: Path) -> None:
    root = tmp_path / "w"
    commands = "git push origin main || true; curl -s http://127.0.0.1:9/ || true; echo hi > f"
    async with world_of(root, [bash(commands), bash("ls"), "Done."]) as (world, undo, _):
        await world.run()
        report = await undo.undo(preview=True)
        assert not report.done
        assert (root / "f").exists()
        assert {effect.why for effect in report.irreversible} == {
            "the remote keeps what was pushed",
            "what it sent or changed elsewhere stays",
        }
        await undo.undo()
        assert (await undo.undo(prompts=1)).irreversible == ()


async def test_a_step_that_only_reads_takes_no_checkpoint(tmp_path: Path) -> None:
    root = tmp_path / "w"
    turns = [
        Turn(calls=[call("list_directory", path=".")]),
        bash("ls -la && git status 2>/dev/null | head -3"),
        Turn(calls=[call("write_file", path="a", content="1"), call("write_file", path="b", content="2")]),
        "Done.",
    ]
    async with world_of(root, turns) as (world, _undo, _):
        await world.run()
        assert len(world.of("checkpoint")) == 1
        assert len(world.results) == 4
