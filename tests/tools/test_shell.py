"""The shell tools, with real commands."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.config.schema import SandboxConfig
from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import FileAccess, ToolContext
from aar.protocol.tool import ToolOutcome
from aar.safety.spawn import ProcessSpawner
from aar.tools.builtin import shell
from aar.tools.builtin.output import ReadOutputArgs, read_output
from aar.tools.builtin.shell import BashArgs, BashOutputArgs, KillShellArgs
from aar.tools.builtin.terminal_text import plain_text, shorten
from aar.tools.foreground import Foreground
from aar.tools.output_store import OutputStore
from aar.tools.schema import validate_arguments
from tests.support.waiting import until


async def no_answer(_question: str, _options: object) -> None:
    return None


@dataclass
class Bench:
    """One session's tools over a real spawner."""

    folder: Path
    spawner: ProcessSpawner
    outputs: OutputStore
    progress: list[str] = field(default_factory=list)
    background: dict[str, Any] = field(default_factory=dict)
    calls: int = 0

    def context(self, **changes: Any) -> ToolContext:
        self.calls += 1
        return ToolContext(
            call_id=f"call-{self.calls}",
            workspace=self.folder,
            files=cast("FileAccess", None),
            spawner=self.spawner,
            outputs=self.outputs,
            progress=self.progress.append,
            ask=no_answer,
            plan=(),
            set_plan=lambda _: None,
            background=self.background,
            **changes,
        )

    async def bash(self, command: str, context: ToolContext | None = None, **arguments: Any) -> ToolOutcome:
        return await shell.run_bash(BashArgs(command=command, **arguments), context or self.context())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    folder = tmp_path / "project"
    folder.mkdir()
    spawner = ProcessSpawner(folder, SandboxConfig(mode="none"))
    yield Bench(folder, spawner, OutputStore(tmp_path / "outputs"))
    spawner.close()


async def test_output_comes_back_as_text(bench: Bench) -> None:
    outcome = await bench.bash("echo hello; echo err >&2; pwd")
    assert outcome.output == f"hello\nerr\n{bench.folder}"
    assert (outcome.exit_code, outcome.is_error, outcome.truncated, outcome.sandbox) == (
        0,
        False,
        False,
        "none",
    )


async def test_a_failing_command_tells_its_exit_code_and_is_no_tool_error(bench: Bench) -> None:
    outcome = await bench.bash("echo bad; exit 3")
    assert outcome.output == "bad\nexit code: 3"
    assert (outcome.exit_code, outcome.is_error) == (3, False)
    assert (await bench.bash("exit 1")).output == "exit code: 1"
    assert (await bench.bash("true")).output == "(no output)"
    assert (await bench.bash("kill -9 $$")).output == "exit code: 137 (killed by signal 9)"


async def test_a_timeout_keeps_the_output_and_says_how_to_go_on(bench: Bench) -> None:
    began = time.monotonic()
    outcome = await bench.bash("echo part; sleep 60", timeout_s=2)
    assert time.monotonic() - began < 30
    assert outcome.output.startswith("Error [timeout]: the command was killed after 2 s")
    assert outcome.output.endswith("part")
    assert "background" in outcome.output
    assert (outcome.is_error, outcome.category) == (True, ToolCategory.TIMEOUT)


async def test_a_command_that_is_sent_to_the_background_goes_on_past_its_timeout(bench: Bench) -> None:
    foreground = Foreground()
    context = bench.context(foreground=foreground)
    os.mkfifo(bench.folder / "fifo")
    work = asyncio.create_task(bench.bash("echo begun; read < fifo; echo over", context, timeout_s=30))
    await until(lambda: "begun" in "".join(bench.progress))
    assert foreground.send_back() == 1
    outcome = await work
    assert outcome.output.startswith("begun\nThe user sent this command to the background")
    assert (outcome.is_error, list(bench.background), len(foreground)) == (False, ["shell_1"], 0)
    process = bench.background["shell_1"]
    assert [timer for timer in process._timers if not timer.cancelled()] == []
    (bench.folder / "fifo").write_text("go\n")
    await process.wait()
    shown = await shell.show_output(BashOutputArgs(shell_id="shell_1"), bench.context())
    assert shown.output == "begun\nover\nshell_1 has ended, exit code: 0"
    assert "over" not in "".join(bench.progress)
    assert foreground.send_back() == 0


async def test_a_cancelled_command_dies_also_where_it_could_go_to_the_background(bench: Bench) -> None:
    work = asyncio.create_task(bench.bash("echo $$; sleep 60", bench.context(foreground=Foreground())))
    await until(lambda: bench.progress)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not Path(f"/proc/{int(bench.progress[0])}").exists()
    assert bench.background == {}


async def test_the_timeout_comes_from_the_settings_when_none_is_given(bench: Bench) -> None:
    outcome = await bench.bash("sleep 60", bench.context(settings={"bash.timeout": 2}))
    assert "after 2 s" in outcome.output


async def test_long_output_is_cut_and_can_be_read_in_full(bench: Bench) -> None:
    outcome = await bench.bash("seq 1 50000", bench.context(max_output_chars=2000))
    assert outcome.truncated
    assert outcome.output_ref is not None
    assert outcome.output.startswith("1\n2\n")
    assert outcome.output.endswith("49999\n50000")
    assert f"read_output has the whole under {outcome.output_ref}" in outcome.output
    assert len(outcome.output) < 2200
    args = ReadOutputArgs(ref=outcome.output_ref, start_line=25000, end_line=25001)
    assert (await read_output(args, bench.context())).output == " 25000  25000\n 25001  25001"


async def test_output_that_is_cut_but_fits_in_memory_can_be_read_in_full_too(bench: Bench) -> None:
    outcome = await bench.bash("seq 1 5000", bench.context(max_output_chars=2000))
    assert outcome.output_ref == "out_call-1"
    assert len(outcome.output) < 2200
    args = ReadOutputArgs(ref=outcome.output_ref, start_line=2500, end_line=2500)
    assert (await read_output(args, bench.context())).output == "  2500  2500"


async def test_short_output_leaves_no_file(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.bash("echo short")
    assert outcome.output_ref is None
    assert list((tmp_path / "outputs").iterdir()) == []


async def test_colours_progress_bars_and_broken_bytes_become_plain_text(bench: Bench) -> None:
    outcome = await bench.bash(
        r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\nbad\377byte\0\a\n\033]0;title\007x'"
    )
    assert outcome.output == "red\n100%\nbad\ufffdbyte\nx"


async def test_progress_is_shown_while_the_command_runs(bench: Bench) -> None:
    began = time.monotonic()
    await bench.bash("for n in 1 2 3 4 5 6 7 8; do echo line $n; sleep 0.05; done")
    most = (time.monotonic() - began) / 0.1 + 1
    assert bench.progress[0].startswith("line 1")
    assert 2 <= len(bench.progress) <= most, "at most every tenth of a second"


async def test_no_input_can_be_read(bench: Bench) -> None:
    assert (await bench.bash("read answer || echo nothing", timeout_s=60)).output == "nothing"


async def test_plan_mode_is_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    spawner = ProcessSpawner(folder)
    try:
        if not spawner.status().enforced:
            pytest.skip("no wall here")
        bench = Bench(folder, spawner, OutputStore(tmp_path / "outputs"))
        outcome = await bench.bash("echo x > file", bench.context(read_only=True))
        assert "Permission denied" in outcome.output or "Read-only file system" in outcome.output
        assert outcome.sandbox == spawner.wall
        assert (await bench.bash("echo x > file; cat file")).output == "x"
    finally:
        spawner.close()


async def test_cancelling_a_command_leaves_no_file_and_no_process(bench: Bench, tmp_path: Path) -> None:
    task = asyncio.create_task(bench.bash("echo $$ > pid; exec sleep 60"))
    file = bench.folder / "pid"
    pid = await until(lambda: file.exists() and file.read_text().strip())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{pid}").exists()
    assert list((tmp_path / "outputs").iterdir()) == []


async def test_a_background_command_is_read_and_ended(bench: Bench) -> None:
    started = await bench.bash("echo up; sleep 60", background=True)
    assert "shell_1" in started.output
    await until(bench.background["shell_1"].output)
    first = await shell.show_output(BashOutputArgs(shell_id="shell_1", wait_s=0), bench.context())
    assert first.output == "up\nshell_1 is still running."
    began = time.monotonic()
    ended = await shell.end_shell(KillShellArgs(shell_id="shell_1"), bench.context())
    assert time.monotonic() - began < 30
    assert ended.output.startswith("shell_1 killed.\nup\n")
    with pytest.raises(ToolFailure, match="No background command is called 'shell_1'"):
        await shell.show_output(BashOutputArgs(shell_id="shell_1"), bench.context())


async def test_a_background_command_that_ended_tells_its_exit_code(bench: Bench) -> None:
    await bench.bash("echo done; exit 2", background=True)
    outcome = await shell.show_output(BashOutputArgs(shell_id="shell_1", wait_s=60), bench.context())
    assert outcome.output == "done\nshell_1 has ended, exit code: 2"
    assert outcome.exit_code == 2
    assert (
        "ended already" in (await shell.end_shell(KillShellArgs(shell_id="shell_1"), bench.context())).output
    )


async def test_waiting_for_a_background_command_can_be_cancelled_without_killing_it(bench: Bench) -> None:
    await bench.bash("sleep 60", background=True)
    args = BashOutputArgs(shell_id="shell_1", wait_s=30)
    task = asyncio.create_task(shell.show_output(args, bench.context()))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.background["shell_1"].running


async def test_background_commands_are_limited_in_number(bench: Bench) -> None:
    for _ in range(shell.MAX_BACKGROUND):
        await bench.bash("sleep 60", background=True)
    with pytest.raises(ToolFailure, match="kill_shell") as caught:
        await bench.bash("sleep 60", background=True)
    assert caught.value.category is ToolCategory.BLOCKED


async def test_a_nul_character_is_refused(bench: Bench) -> None:
    with pytest.raises(ToolFailure, match="NUL"):
        await bench.bash("echo a\0b")


async def test_a_missing_workspace_is_told(bench: Bench) -> None:
    bench.folder.rmdir()
    with pytest.raises(ToolFailure, match="could not be started"):
        await bench.bash("true")


def test_foreign_argument_names_are_understood() -> None:
    spec = shell.tools()[0]
    args = validate_arguments(spec, {"cmd": "ls", "timeout": "5"})
    assert isinstance(args, BashArgs)
    assert (args.command, args.timeout_s, args.background) == ("ls", 5, False)


@given(st.binary(max_size=300))
def test_plain_text_holds_no_control_characters(data: bytes) -> None:
    text = plain_text(data)
    assert not [c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]


@given(st.text(max_size=400), st.integers(2, 100))
def test_shortened_text_keeps_both_ends(text: str, limit: int) -> None:
    short = shorten(text, limit, "")
    if len(text) <= limit:
        assert short == text
    else:
        head, _, tail = short.partition("[... ")
        assert text.startswith(head.removesuffix("\n"))
        assert text.endswith(tail.partition(" ...]\n")[2])


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"10%\r20%\r", "20%"),
        (b"ab\b\bx", "x"),
        (b"\x1b[1;31mx\x1b[m", "x"),
        (b"\x1b]8;;http://e\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b[2K\x1b[1Gnew", "new"),
        (b"\x1b(Bx\x1b=", "x"),
        (b"\xc2\x9b31mx", "x"),
        (b"tab\there", "tab\there"),
    ],
)
def test_terminal_sequences_are_removed(raw: bytes, plain: str) -> None:
    assert plain_text(raw) == plain
