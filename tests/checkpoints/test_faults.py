"""Kills, two processes at once, folders that cannot be written, files that change while they are read."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aar.memory.checkpoint_log import Checkpoint, CheckpointLog
from aar.memory.checkpoints import CheckpointStore
from aar.protocol.errors import StorageError
from tests.checkpoints.support import bash, store_for, tree, world_of, write
from tests.checkpoints.test_places import back

ENGINES = pytest.mark.parametrize("engine", ["plain", "git"])

_WORKER = """
import asyncio, sys
from pathlib import Path
from tests.checkpoints.support import store_for

async def main(root, folder, engine, rounds):
    with store_for(root, folder, engine) as store:
        print("ready", flush=True)
        for number in range(rounds):
            (root / f"by-{sys.argv[5]}").write_text(str(number))
            await store.capture("manual")
    print("done", flush=True)

asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
"""


def worker(root: Path, folder: Path, engine: str, rounds: int, name: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _WORKER, str(root), str(folder), engine, str(rounds), name]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def fill(root: Path, files: int = 200) -> None:
    root.mkdir()
    for number in range(files):
        (root / f"f{number}").write_text(f"content {number}\n" * 20)


@ENGINES
async def test_after_kill_9_at_any_moment_checkpoints_go_on_and_old_ones_come_back(
    tmp_path: Path, engine: str
) -> None:
    root, folder = tmp_path / "w", tmp_path / "kept"
    fill(root)
    start = tree(root)
    chance = random.Random(7)
    with store_for(root, folder, engine) as store:
        first = await store.capture("manual")
        for _ in range(2):
            process = worker(root, folder, engine, 1000, "killed")
            assert process.stdout is not None
            process.stdout.readline()
            await asyncio.sleep(chance.uniform(0, 0.15))
            process.kill()
            process.wait()
            process.stdout.close()
            checkpoint = await store.capture("manual")
            assert await store.compare(checkpoint.state, await store.peek()) == []
        for item in store.list():
            await store.state(item.state)
        assert await back(store, first.state) == {}
    assert tree(root) == start


@ENGINES
async def test_two_processes_share_one_store(tmp_path: Path, engine: str) -> None:
    root, folder = tmp_path / "w", tmp_path / "kept"
    fill(root, 50)
    with store_for(root, folder, engine) as store:
        first = await store.capture("manual")
        processes = [worker(root, folder, engine, 4, name) for name in ("a", "b")]
        for _ in range(4):
            await store.capture("manual")
        assert all("done" in process.communicate(timeout=60)[0] for process in processes)
        assert len(store.list()) == 1 + 4 + 8
        last = await store.peek()
        assert [d.path for d in await store.compare(first.state, last)] == ["by-a", "by-b"]
        assert (
            await store.read([d.new.blob for d in await store.compare(first.state, last) if d.new])
        ).popitem()


@ENGINES
async def test_a_damaged_index_is_made_anew_and_a_damaged_content_is_told(
    tmp_path: Path, engine: str
) -> None:
    root, folder = tmp_path / "w", tmp_path / "kept"
    fill(root, 5)
    with store_for(root, folder, engine) as store:
        first = await store.capture("manual")
        index = folder / "git" / "index"
        if engine == "git":
            index.write_bytes(index.read_bytes()[:100])
            (folder / "git" / "index.lock").write_text("left by the dead")
        (root / "f1").write_text("new")
        assert [d.path for d in await store.compare(first.state, await store.peek())] == ["f1"]
        (old,) = [d.old for d in await store.compare(first.state, await store.peek())]
        assert old is not None
        blob = store.objects.path(old.blob)
        blob.chmod(0o600)
        blob.write_bytes(b"rot")
        assert "cannot be read" in (await back(store, first.state))["f1"]
        assert (root / "f1").read_text() == "new"


def test_a_torn_line_of_the_list_is_skipped(tmp_path: Path) -> None:
    log = CheckpointLog(tmp_path / "log")
    log.append(Checkpoint("A", "manual", "s", 1.0))
    with (tmp_path / "log").open("ab") as file:
        file.write(b'{"id": "torn", "ki')
    log.append(Checkpoint("B", "auto", "s", 2.0))
    assert [item.id for item in log.all()] == ["A", "B"]
    assert [item.id for item in CheckpointLog(tmp_path / "log").all()] == ["A", "B"]


async def test_a_data_folder_that_cannot_be_written_is_told_once_and_work_goes_on(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file is in the way of the folder")
    turns = [write("a", "1"), write("b", "2"), "Done."]
    async with world_of(tmp_path / "w", turns) as (world, _undo, _):
        result = await world.run()
        assert result.exit_code == 0
        notices = [event.message for event in world.of("notice") if event.code == "checkpoints"]
        assert 1 <= len(notices) <= 2
        assert "cannot be undone" in notices[0]
        assert world.of("checkpoint") == []
    assert (tmp_path / "w/b").read_text() == "2"


async def test_a_read_only_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "ro").mkdir(mode=0o500)
    if os.access(tmp_path / "ro", os.W_OK):
        pytest.skip("this user writes everywhere")
    (tmp_path / "w").mkdir()
    with (
        store_for(tmp_path / "w", tmp_path / "ro/kept") as store,
        pytest.raises(StorageError, match="writable"),
    ):
        await store.capture("manual")


@ENGINES
async def test_files_that_change_while_they_are_read_do_not_stop_a_checkpoint(
    tmp_path: Path, engine: str
) -> None:
    root = tmp_path / "w"
    fill(root, 30)
    script = (
        "import os, sys, time\nend = time.time() + 20\nn = 0\n"
        "while time.time() < end:\n"
        " n += 1\n p = f'f{n % 30}'\n"
        " open(p, 'w').write('x' * (n % 7000)) if n % 3 else (os.path.exists(p) and os.remove(p))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=root)
    try:
        with store_for(root, tmp_path / "kept", engine) as store:
            kept = [await store.capture("manual") for _ in range(8)]
            process.send_signal(signal.SIGSTOP)
            for item in kept:
                assert await store.compare(item.state, kept[0].state) is not None
            last = await store.peek()
            still = await store.state(last)
            assert still.skipped == {}
            found = {path: content for path, (_, content) in tree(root).items()}
            files = await store._files(still)
            assert await store.read(e.blob for e in files.values()) is not None
            assert {path: store.objects.get(entry.blob) for path, entry in files.items()} == found
    finally:
        process.kill()
        process.wait()


async def test_a_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    for engine in ("plain", "git"):
        with store_for(root, tmp_path / f"kept-{engine}", engine) as store:
            for number in range(20):
                (root / "same-size").write_text(f"{number:04d}")
                files = await store._files(await store.state(await store.peek()))
                assert store.objects.get(files["same-size"].blob) == f"{number:04d}".encode()


async def test_a_link_that_a_command_planted_is_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "w", tmp_path / "outside"
    (root / "d").mkdir(parents=True)
    outside.mkdir()
    (root / "d/x").write_text("mine")
    (outside / "x").write_text("not yours")
    async with world_of(root, [bash(f"rm -r d; ln -s {outside} d"), "Done."]) as (world, undo, _):
        await world.run()
        report = await undo.undo()
        assert report.done
        assert report.problems == {}
        assert not (root / "d").is_symlink()
        assert (root / "d/x").read_text() == "mine"
        (root / "d/x").unlink()
        (root / "d").rmdir()
        (root / "d").symlink_to(outside)
        await undo.redo(on_conflict="force")
    assert (outside / "x").read_text() == "not yours"


async def test_a_checkpoint_that_takes_too_long_is_told_and_not_waited_for(tmp_path: Path) -> None:
    async with world_of(tmp_path / "w", [write("a", "1"), "Done."]) as (world, _undo, checkpoints):
        checkpoints._wait_s = 0.05
        taken = checkpoints.store.capture

        async def slow(*words: object, **options: object) -> Checkpoint:
            await asyncio.sleep(0.4)
            return await taken(*words, **options)  # type: ignore[arg-type]

        checkpoints.store.capture = slow  # type: ignore[method-assign]
        await asyncio.wait_for(world.run(), 60)
        assert any("wait_seconds" in event.message for event in world.of("notice"))
        checkpoints._wait_s = 5
    assert isinstance(checkpoints.store, CheckpointStore)
