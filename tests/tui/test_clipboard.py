"""The clipboard says what is true: who took the text, or that nobody can know."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aar.safety.spawn import ProcessSpawner
from aar.transports.tui.clipboard import MAX_OSC52, Clipboard
from tests.support.waiting import until


class Desk:
    """A folder of fake programs, and what was written to the terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[str] = []
        self.spawner = ProcessSpawner(folder)

    def program(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def find(self, name: str) -> str | None:
        path = self.folder / name
        return str(path) if path.exists() else None

    def clipboard(self, **environ: str) -> Clipboard:
        return Clipboard(self.written.append, environ, self.spawner, self.find)

    @property
    def sent(self) -> str:
        return base64.b64decode(self.written[-1].split(";")[2].rstrip("\x07\x1b\\")).decode()


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    # A tool that ends is seen to end, however long that takes on a busy machine.
    monkeypatch.setattr("aar.transports.tui.clipboard._SETTLE_S", 60)
    monkeypatch.setattr("aar.transports.tui.clipboard._WAIT_S", 60)
    desk = Desk(tmp_path)
    yield desk
    desk.spawner.close()


async def test_a_tool_that_took_the_text_is_named(desk: Desk) -> None:
    desk.program("xclip", f"cat > {desk.folder}/kept; exit 0")
    told = await desk.clipboard(DISPLAY=":0").copy("two\nlines")
    assert told.sure
    assert told.message == "Copied 2 lines (xclip)."
    assert (desk.folder / "kept").read_text() == "two\nlines"
    assert desk.written == []


async def test_a_tool_that_stays_to_serve_the_text_counts_and_goes_with_the_next_copy(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aar.transports.tui.clipboard._SETTLE_S", 0.1)
    desk.program("wl-copy", f"cat > /dev/null; echo $$ > {desk.folder}/pid; exec sleep 60")
    clipboard = desk.clipboard(WAYLAND_DISPLAY="wayland-0")
    assert (await clipboard.copy("text")).sure
    file = desk.folder / "pid"
    pid = int(await until(lambda: file.exists() and file.read_text().strip()))
    os.kill(pid, 0)
    clipboard.close()
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert not Path(f"/proc/{pid}").exists()


async def test_a_tool_that_fails_is_not_believed(desk: Desk) -> None:
    desk.program("xclip", "echo cannot open display >&2; exit 1")
    told = await desk.clipboard(DISPLAY=":0").copy("text")
    assert not told.sure
    assert "does not tell" in told.message
    assert desk.sent == "text"


async def test_over_ssh_only_the_terminal_reaches_the_user(desk: Desk) -> None:
    desk.program("xclip", "exit 0")
    told = await desk.clipboard(DISPLAY="localhost:10", SSH_CONNECTION="a b c d").copy("日本")
    assert not told.sure
    assert desk.sent == "日本"


async def test_tmux_takes_the_text_into_its_buffer(desk: Desk) -> None:
    desk.program("tmux", f"echo $* > {desk.folder}/argv; cat > {desk.folder}/buffer")
    told = await desk.clipboard(TMUX="/tmp/x,1,0").copy("a b")
    assert told.sure
    assert (
        told.message == "Copied 3 characters to tmux's buffer (prefix ] pastes) and sent it to the terminal."
    )
    assert (desk.folder / "buffer").read_text() == "a b"
    assert (desk.folder / "argv").read_text().split() == ["load-buffer", "-"]


async def test_screen_passes_the_sequence_on_when_it_is_wrapped(desk: Desk) -> None:
    await desk.clipboard(STY="1.x").copy("a")
    assert desk.written[0].startswith("\x1bP\x1b]52;c;")
    assert desk.written[0].endswith("\x1b\\")


async def test_what_no_way_takes_is_said_to_be_lost(desk: Desk) -> None:
    told = await desk.clipboard().copy("x" * MAX_OSC52)
    assert told.message.startswith("Not copied")
    assert not told.sure
    assert desk.written == []
    assert (await desk.clipboard().copy("")).message == "There is nothing to copy."
