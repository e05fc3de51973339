"""How processes start, end and die, with real ones."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from aar.config.schema import SandboxConfig
from aar.protocol.errors import SandboxError
from aar.protocol.ports import SpawnRequest
from aar.safety.spawn import ProcessSpawner
from tests.spawn.conftest import shell
from tests.support.waiting import alive, gone, until


async def pids_in(file: Path, count: int) -> list[int]:
    """Wait until ``count`` process ids were written into ``file``."""

    def words() -> list[str]:
        found = file.read_text().split() if file.exists() else []
        return found if len(found) >= count else []

    return [int(word) for word in await until(words, told=lambda: "the processes did not start")]


async def test_output_and_exit_code_come_back(bare: ProcessSpawner, workspace: Path) -> None:
    result = await shell(bare, "echo out; echo err >&2; exit 3", workspace)
    assert (result.output, result.exit_code, result.truncated) == (b"out\nerr\n", 3, False)
    assert (result.wall, result.timed_out, result.total_bytes) == ("none", False, 8)


async def test_standard_error_is_kept_apart_on_request(bare: ProcessSpawner, workspace: Path) -> None:
    result = await shell(bare, "echo out; echo err >&2", workspace, merge_stderr=False)
    assert (result.output, result.stderr) == (b"out\n", b"err\n")


async def test_a_killed_process_has_a_negative_signal_as_exit_code(
    bare: ProcessSpawner, workspace: Path
) -> None:
    assert (await shell(bare, "kill -9 $$", workspace)).exit_code == -9


async def test_standard_input_is_empty_or_what_was_given(bare: ProcessSpawner, workspace: Path) -> None:
    assert (await shell(bare, "cat; echo end", workspace, timeout_s=5)).output == b"end\n"
    given = b"x" * 300_000
    result = await shell(bare, "wc -c", workspace, stdin=given)
    assert result.output.strip() == b"300000"


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (("no-such-program-here",), FileNotFoundError),
        (("/etc/passwd",), PermissionError),
        (("/",), PermissionError),
    ],
)
async def test_a_program_that_cannot_run_is_an_error(
    bare: ProcessSpawner, workspace: Path, argv: tuple[str, ...], error: type[OSError]
) -> None:
    with pytest.raises(error) as caught:
        await bare.run(SpawnRequest(argv, workspace))
    assert caught.value.filename == argv[0]


async def test_a_missing_working_folder_is_an_error(bare: ProcessSpawner, workspace: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        await bare.run(SpawnRequest(("true",), workspace / "absent"))
    assert str(caught.value.filename).endswith("absent")


async def test_a_nul_in_an_argument_is_an_error(bare: ProcessSpawner, workspace: Path) -> None:
    with pytest.raises((OSError, SandboxError)):
        await bare.run(SpawnRequest(("echo", "a\0b"), workspace))
    assert (await shell(bare, "echo still here", workspace)).output == b"still here\n"


async def test_arguments_pass_byte_for_byte(bare: ProcessSpawner, workspace: Path) -> None:
    words = ("", " ", "ä€😀", "a\nb", "\udcff", "$(id)", "x" * 100_000)
    result = await bare.run(SpawnRequest(("printf", "%s\\0", *words), workspace))
    assert result.output == b"".join(os.fsencode(word) + b"\0" for word in words)


async def test_twenty_processes_run_side_by_side(bare: ProcessSpawner, workspace: Path) -> None:
    all_here = "echo >> here; until [ $(wc -l < here) = 20 ]; do sleep 0.1; done"
    results = await asyncio.gather(*(shell(bare, f"{all_here}; echo {n}", workspace) for n in range(20)))
    assert [result.output for result in results] == [f"{n}\n".encode() for n in range(20)]


async def test_each_process_leads_a_session_and_group_of_its_own(
    bare: ProcessSpawner, workspace: Path
) -> None:
    process = await bare.start(SpawnRequest(("sleep", "5"), workspace))
    assert os.getpgid(process.pid) == os.getsid(process.pid) == process.pid
    assert process.running
    await process.kill()
    assert not process.running


async def test_the_shell_s_end_is_the_end_though_a_child_holds_the_pipe(
    bare: ProcessSpawner, workspace: Path
) -> None:
    began = time.monotonic()
    result = await shell(bare, "sleep 50 & echo $! > pid; echo started", workspace)
    assert (result.output, result.exit_code) == (b"started\n", 0)
    assert time.monotonic() - began < 40
    assert await gone(await pids_in(workspace / "pid", 1))


TREE = "sleep 50 & echo $! >> pids; setsid sleep 51 & echo $! >> pids; (setsid sh -c 'echo $$ >> pids; exec sleep 52' &); echo begun; wait"


async def test_a_timeout_kills_the_tree_and_keeps_the_output(bare: ProcessSpawner, workspace: Path) -> None:
    began = time.monotonic()
    result = await shell(bare, TREE, workspace, timeout_s=2)
    assert time.monotonic() - began < 45
    assert result.timed_out
    assert result.output == b"begun\n"
    assert await gone(await pids_in(workspace / "pids", 3))


async def test_cancelling_kills_the_tree(bare: ProcessSpawner, workspace: Path) -> None:
    task = asyncio.create_task(shell(bare, TREE, workspace))
    pids = await pids_in(workspace / "pids", 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(pids)


async def test_what_ignores_the_polite_signal_is_killed_too(bare: ProcessSpawner, workspace: Path) -> None:
    stubborn = "trap '' TERM HUP INT; echo $$ >> pids; while :; do sleep 0.05; done"
    process = await bare.start(SpawnRequest(("sh", "-c", f"({stubborn}) & {stubborn}"), workspace))
    pids = await pids_in(workspace / "pids", 2)
    began = time.monotonic()
    await process.kill()
    assert time.monotonic() - began < 45
    assert await gone([*pids, process.pid])


async def test_a_stopped_process_is_killed_too(bare: ProcessSpawner, workspace: Path) -> None:
    process = await bare.start(SpawnRequest(("sh", "-c", "kill -STOP $$"), workspace))
    state = Path(f"/proc/{process.pid}/stat")
    await until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
    await process.kill()
    assert await gone([process.pid])


async def test_closing_the_spawner_kills_everything_and_removes_the_private_folder(workspace: Path) -> None:
    spawner = ProcessSpawner(workspace, SandboxConfig(mode="none"))
    process = await spawner.start(SpawnRequest(("sh", "-c", TREE), workspace))
    pids = await pids_in(workspace / "pids", 3)
    temp = spawner.temp_folder
    assert temp.stat().st_mode & 0o777 == 0o700
    spawner.close()
    assert await gone([*pids, process.pid])
    assert not temp.exists()


PARENT = """
import asyncio, sys
from pathlib import Path
from aar.protocol.ports import SpawnRequest
from aar.safety.spawn import ProcessSpawner
from aar.config.schema import SandboxConfig

async def main():
    spawner = ProcessSpawner(Path(sys.argv[1]), SandboxConfig(mode="none"))
    await spawner.run(SpawnRequest(("sh", "-c", sys.argv[2]), Path(sys.argv[1])))

asyncio.run(main())
"""


async def test_kill_9_of_aar_leaves_no_process_behind(workspace: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(workspace), TREE])
    try:
        pids = await pids_in(workspace / "pids", 3)
        assert all(map(alive, pids))
    finally:
        parent.kill()
        parent.wait()
    assert await gone(pids)


async def test_a_killed_supervisor_takes_its_tree_along(bare: ProcessSpawner, workspace: Path) -> None:
    process = await bare.start(SpawnRequest(("sh", "-c", TREE), workspace))
    pids = await pids_in(workspace / "pids", 3)
    supervisor = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    assert await gone([*pids, process.pid])
    assert (await process.wait()).exit_code is None
    assert (await shell(bare, "echo next", workspace)).output == b"next\n"


async def test_a_killed_server_is_replaced(bare: ProcessSpawner, workspace: Path) -> None:
    process = await bare.start(SpawnRequest(("sleep", "60"), workspace))
    supervisor = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])
    server = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGKILL)
    assert await gone([process.pid])
    await process.wait()
    assert (await shell(bare, "echo again", workspace)).output == b"again\n"


async def test_output_without_end_keeps_head_and_tail_in_little_memory(
    bare: ProcessSpawner, workspace: Path
) -> None:
    await shell(bare, "true", workspace)
    # What is allocated, not what the system reports: that depends on what ran before, and on its load.
    tracemalloc.start()
    try:
        # Ended by the amount, so that a slow machine tests the same as a fast one.
        command = "echo first; yes | head -c 60000000; exec yes"
        seen = 0

        def count(piece: bytes) -> None:
            nonlocal seen
            seen += len(piece)
            if seen > 50_000_000:
                enough.set()

        enough = asyncio.Event()
        request = SpawnRequest(("/bin/sh", "-c", command), workspace, timeout_s=60, max_output=1_000_000)
        process = await bare.start(request, count)
        await asyncio.wait_for(enough.wait(), 60)
        await process.kill()
        result = await process.wait()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.total_bytes > 50_000_000
    assert peak < 6_000_000
    assert result.truncated
    assert result.output.startswith(b"first\ny\n")
    assert result.output.rstrip().endswith(b"y")
    assert len(result.output) < 1_000_100


async def test_a_timeout_ends_output_without_end(bare: ProcessSpawner, workspace: Path) -> None:
    result = await shell(bare, "yes", workspace, timeout_s=2, max_output=1_000)
    assert result.timed_out
    assert result.truncated


async def test_one_line_of_100_mb_is_cut_and_counted(
    bare: ProcessSpawner, workspace: Path, tmp_path: Path
) -> None:
    await shell(bare, "true", workspace)
    tracemalloc.start()
    spool = tmp_path / "spool"
    result = await shell(
        bare, "printf head; head -c 100000000 /dev/zero | tr '\\0' x; printf tail", workspace, spool=spool
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6_000_000
    assert result.total_bytes == 100_000_008
    assert spool.stat().st_size == 100_000_008
    assert spool.stat().st_mode & 0o777 == 0o600
    assert result.output.startswith(b"headx")
    assert result.output.endswith(b"xtail")
    assert b"[... 99000008 bytes left out ...]" in result.output
    spool.unlink()


async def test_pieces_are_handed_on_as_they_come(bare: ProcessSpawner, workspace: Path) -> None:
    seen: list[tuple[float, bytes]] = []
    request = SpawnRequest(("sh", "-c", "echo one; sleep 0.4; echo two"), workspace)
    await bare.run(request, lambda piece: seen.append((time.monotonic(), piece)))
    assert [piece for _, piece in seen] == [b"one\n", b"two\n"]
    assert seen[1][0] - seen[0][0] > 0.3


async def test_memory_and_process_limits_hold(workspace: Path) -> None:
    spawner = ProcessSpawner(workspace, SandboxConfig(mode="none", memory_mb=300))
    try:
        result = await shell(spawner, f"{sys.executable} -c 'bytearray(900_000_000)'", workspace)
        assert b"MemoryError" in result.output
        assert (await shell(spawner, "ulimit -c", workspace)).output == b"0\n"
    finally:
        spawner.close()


async def test_no_descriptor_of_aar_reaches_a_command(bare: ProcessSpawner, workspace: Path) -> None:
    leak = os.open(workspace, os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        result = await shell(bare, "ls /proc/$$/fd", workspace)
    finally:
        os.close(leak)
    assert set(result.output.split()) <= {b"0", b"1", b"2", b"10"}


async def test_helpers_run_without_the_wall(walled: ProcessSpawner, workspace: Path, tmp_path: Path) -> None:
    target = tmp_path / "outside"
    result = await shell(walled, f"echo x > {target}", workspace, kind="helper")
    assert (result.exit_code, result.wall) == (0, "none")
    assert target.read_text() == "x\n"


async def test_an_interactive_program_keeps_the_terminal_and_its_exit_code_comes_back(
    bare: ProcessSpawner, workspace: Path
) -> None:
    result = await bare.run(
        SpawnRequest(("sh", "-c", "echo $PWD > seen; exit 4"), workspace, kind="interactive")
    )
    assert result.exit_code == 4
    assert (workspace / "seen").read_text().strip() == str(workspace)


async def test_a_program_is_found_in_the_path_of_its_own_environment(
    bare: ProcessSpawner, workspace: Path
) -> None:
    (workspace / "bin").mkdir()
    program = workspace / "bin" / "greet"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    env = {"PATH": f"/absent:{workspace}/bin:/usr/bin:/bin"}
    assert (await bare.run(SpawnRequest(("greet",), workspace, env=env))).output == b"hello\n"
    program.chmod(0o644)
    with pytest.raises(PermissionError):
        await bare.run(SpawnRequest(("greet",), workspace, env=env))


def test_the_private_folder_goes_when_the_program_ends_without_closing(workspace: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from aar.safety.spawn import ProcessSpawner\n"
        "spawner = ProcessSpawner(Path(sys.argv[1])); print(spawner.temp_folder, spawner.temp_folder.is_dir())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(workspace)], capture_output=True, text=True, check=True
    )
    folder, existed = done.stdout.split()
    assert existed == "True"
    assert not Path(folder).exists()


async def test_removing_the_private_folder_never_touches_the_folder_above(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    spawner = ProcessSpawner(workspace, SandboxConfig(mode="none"))
    private = spawner.temp_folder.parent
    await shell(spawner, "mkdir $TMPDIR/a && touch $TMPDIR/a/b && chmod 0 $TMPDIR/a $TMPDIR", workspace)
    spawner.close()
    assert not private.exists()
    swapped = ProcessSpawner(workspace, SandboxConfig(mode="none"))
    await shell(swapped, f"mkdir $TMPDIR/b && touch $TMPDIR/b/c && ln -s {shared} $TMPDIR/b/d", workspace)
    await shell(swapped, "chmod 500 $TMPDIR/b && chmod 0 $TMPDIR", workspace)
    swapped.close()
    again = ProcessSpawner(workspace, SandboxConfig(mode="none"))
    again.temp_folder.parent.rename(tmp_path / "gone")
    again.close()
    del again, spawner, swapped
    gc.collect()
    assert shared.stat().st_mode & 0o7777 == 0o1777
    assert list(shared.iterdir()) == []
