"""Language servers after edits: only what is new, in time, and nothing left running."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.config.schema import LspConfig, SandboxConfig
from aar.extensions.lsp import LanguageServer, LanguageServers
from aar.extensions.lsp_wire import Frames, LspError, framed
from aar.safety.spawn import ProcessSpawner
from tests.support.fakes import Turn, call
from tests.support.minds import Ask, place

SERVER = Path(__file__).with_name("lsp_server.py")


class Desk:
    """A workspace with language servers."""

    def __init__(self, root: Path, command: list[str], **more: Any) -> None:
        self.root, self.told = root, list[str]()
        self.spawner = ProcessSpawner(root, SandboxConfig(), own=[root / ".never"])
        config = LspConfig.model_validate({"command": command, "extensions": [".py"], **more})
        self.server = LanguageServer("check", config, self.spawner, root)
        self.servers = LanguageServers([self.server], root, self.told.append)

    async def edit(self, name: str, text: str) -> str:
        path = self.root / name
        self.servers.remember(path)
        path.write_text(text)
        return "\n".join(await self.servers.changed([path]))


@asynccontextmanager
async def desk(tmp_path: Path, *command: str, **more: Any) -> AsyncIterator[Desk]:
    root = tmp_path / "ws"
    root.mkdir()
    found = Desk(root, list(command), **more)
    try:
        yield found
    finally:
        await found.servers.aclose()
        found.spawner.close()


def small(mode: str) -> tuple[str, ...]:
    return sys.executable, str(SERVER), mode


@pytest.mark.parametrize("mode", ["pull", "push"])
async def test_only_what_an_edit_broke_is_told_once_and_bounded(tmp_path: Path, mode: str) -> None:
    async with desk(tmp_path, *small(mode)) as here:
        (here.root / "a.py").write_text("BAD old\n")
        assert await here.edit("other.txt", "BAD\n") == ""
        assert here.server._wire is None  # nothing was started for a file of another kind
        first = await here.edit("a.py", "# moved\nBAD old\nBAD new\n")
        assert (
            first
            == "check finds new problems in a.py after this change:\na.py:3:1: error: \u241b[31mbad: BAD new (bad)"
        )
        assert await here.edit("a.py", "BAD new\nBAD old\n") == ""
        assert await here.edit("a.py", "BADISH\n") == ""  # a warning, and only errors are told
        many = await here.edit("a.py", "\n".join(f"BAD {number}" for number in range(50)))
        assert many.count("error") == 20
        assert many.endswith("… and 30 more.")
        assert here.told == []


@pytest.mark.parametrize(
    ("mode", "why"), [("dies", "I saw something bad"), ("garbage", "does not speak the protocol")]
)
async def test_a_server_that_fails_costs_one_notice_and_no_edit(tmp_path: Path, mode: str, why: str) -> None:
    async with desk(tmp_path, *small(mode)) as here:
        assert await here.edit("a.py", "BAD\n") == ""
        assert await here.edit("a.py", "BAD again\n") == ""
        [notice] = here.told
        assert why in notice


async def test_a_program_that_is_not_there_costs_one_notice(tmp_path: Path) -> None:
    async with desk(tmp_path, "no-such-language-server") as here:
        assert await here.edit("a.py", "BAD\n") == ""
        assert "The language server check is not used any more" in here.told[0]


async def test_an_edit_waits_no_longer_than_the_settings_say(tmp_path: Path) -> None:
    async with desk(tmp_path, *small("silent"), timeout=0.1) as here:
        assert await here.edit("a.py", "BAD\n") == ""
        assert here.server.failed is None


async def test_the_model_hears_of_it_with_the_next_request_and_the_server_ends_with_the_session(
    tmp_path: Path,
) -> None:
    def think(ask: Ask) -> Turn | str:
        return Turn(calls=[call("write_file", path="a.py", content="BAD\n")]) if ask.first else "Done."

    command = json.dumps(list(small("pull")))
    sets = (f'lsp.check={{command={command}, extensions=[".py"]}}',)
    async with place(tmp_path, think, sets=sets) as here:
        await here.run()
        [context] = here.of("context")
        assert "check finds new problems in a.py" in context.content[0].text
        assert context.trusted is False
        assert "a.py:1:1: error: \u241b[31mbad: BAD" in here.mind.asked[-1].said


@pytest.mark.parametrize(("program", "more"), [("pyright-langserver", ["--stdio"]), ("pylsp", [])])
async def test_servers_that_people_use_find_a_name_that_is_not_there(
    tmp_path: Path, program: str, more: list[str]
) -> None:
    found = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{program} is not installed")
    async with desk(tmp_path, found, *more, timeout=60) as here:
        (here.root / "a.py").write_text("x = old_mistake\n")
        report = await here.edit("a.py", "x = old_mistake\ny = new_mistake\n")
        if not report and program == "pylsp":
            pytest.skip("pylsp has no pyflakes")
        assert "new_mistake" in report
        assert "old_mistake" not in report
        assert here.told == []


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers()), max_size=5), st.integers(1, 50))
def test_messages_arrive_whole_however_the_bytes_are_cut(messages: list[dict[str, Any]], size: int) -> None:
    data, frames = b"".join(map(framed, messages)), Frames()
    found = [item for at in range(0, len(data), size) for item in frames.feed(data[at : at + size])]
    assert found == messages


@given(st.binary(max_size=200))
def test_bytes_that_are_no_messages_end_in_one_kind_of_error(data: bytes) -> None:
    try:
        found = Frames().feed(data)
    except LspError:
        return
    assert isinstance(found, list)
