"""The methods of the protocol: greeting, sessions, settings, content, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acp.support import FULL, Editor
from tests.cli.support import call, events, script, stored
from tests.support.waiting import until

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
    )
).decode()


SERVER = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": "s", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked["method"] == "tools/list":
        tool = {"name": "say_" + os.environ["A"], "description": "Says it.", "inputSchema": {"type": "object"}}
        result = {"tools": [tool]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture
def hello(tmp_path: Path) -> str:
    return script(tmp_path / "hello.json", "Hello there.", after="last")


# --- greeting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [0, 1, 2, 65535])
async def test_the_version_is_ours_whatever_is_asked_for(hello: str, asked: int) -> None:
    async with Editor.inside(model=hello) as editor:
        result = await editor.greet(version=asked)
        assert result["protocolVersion"] == 1
        assert result["agentInfo"]["name"] == "aar"


@pytest.mark.parametrize("asked", ["1", 1.5, None, True, -1, 65536])
async def test_what_is_no_version_is_refused(hello: str, asked: Any) -> None:
    async with Editor.inside(model=hello) as editor:
        assert (await editor.fail("initialize", protocolVersion=asked))["code"] == -32602


async def test_every_capability_that_is_told_is_served(project: Path, hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        told = (await editor.greet())["agentCapabilities"]
        assert told["loadSession"] is True
        assert told["mcpCapabilities"] == {"http": True, "sse": True}
        session = await editor.new(project)
        await editor.say(session, "Hi.")
        opened = {"sessionId": session, "cwd": str(project), "mcpServers": []}
        served = ("list", "resume", "fork", "close", "delete")
        assert set(told["sessionCapabilities"]) == {*served, "additionalDirectories"}
        for name in served:
            await editor.call(f"session/{name}", **opened)


async def test_nothing_is_served_before_the_greeting(project: Path, hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        for method in ("session/new", "session/list", "session/prompt"):
            assert (await editor.fail(method, cwd=str(project), mcpServers=[]))["code"] == -32600


async def test_ways_to_sign_in_that_need_a_terminal_are_only_for_those_who_have_one(hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        assert [way.get("type") for way in (await editor.greet())["authMethods"]] == [None]
        told = await editor.greet({"auth": {"terminal": True}})
        assert [way.get("type") for way in told["authMethods"]] == [None, "terminal"]
        assert await editor.call("authenticate", methodId="configured") == {}
        assert (await editor.fail("authenticate", methodId="other"))["code"] == -32602


async def test_capabilities_that_are_written_wrongly_count_as_none(project: Path, hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.call("initialize", protocolVersion=1, clientCapabilities=[1], clientInfo=7)
        assert await editor.new(project)


# --- sessions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"cwd": "relative"},
        {"cwd": "/nowhere/at/all"},
        {"cwd": 7},
        {"cwd": "/tmp", "additionalDirectories": ["relative"]},
        {"cwd": "/tmp", "additionalDirectories": ["/nowhere/at/all"]},
        {"cwd": "/tmp", "mcpServers": "none"},
    ],
)
async def test_folders_must_be_absolute_and_there(hello: str, params: dict[str, Any]) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        error = await editor.fail("session/new", **params)
        assert error["code"] == -32602
        assert error["data"]["reason"]


async def test_a_session_that_is_not_there_is_not_found(project: Path, hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        for method in ("load", "resume", "fork", "prompt", "close", "set_mode", "set_config_option"):
            for name in ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "../../etc/passwd"):
                error = await editor.fail(
                    f"session/{method}", sessionId=name, cwd=str(project), mcpServers=[], prompt=[]
                )
                assert error["code"] == -32002, method
        assert await editor.call("session/delete", sessionId="01ARZ3NDEKTSV4RRFFQ69G5FAV") == {}
        editor.tell("session/cancel", sessionId="01ARZ3NDEKTSV4RRFFQ69G5FAV")


async def test_loading_tells_again_what_was_told(project: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "m.json",
        {"reasoning": "Hm.", **call("read_file", "I look.", path="notes.txt")},
        call("write_file", path="new.txt", content="one\ntwo\n"),
        call("todo", items=["a", "b"]),
        "All done.",
    )
    async with Editor.inside(model=model, mode="edit") as editor:
        await editor.greet()
        session = await editor.new(project)
        await editor.say(session, "Work.", {"type": "image", "data": PNG, "mimeType": "image/png"})
        text, thought, calls = editor.text(), editor.text("agent_thought_chunk"), editor.calls()
        ids = [update["messageId"] for update in editor.told("agent_message_chunk")]
        plans = editor.told("plan")
        await editor.call("session/close", sessionId=session)
        editor.updates.clear()
        waiting = editor.start("session/load", {"sessionId": session, "cwd": str(project), "mcpServers": []})
        answer = await asyncio.wait_for(waiting, 60)
        assert answer["result"]["modes"]["currentModeId"] == "edit"
        assert [u["content"]["type"] for u in editor.told("user_message_chunk")] == ["image", "text"]
        assert editor.text("user_message_chunk") == "Work."
        assert (editor.text(), editor.text("agent_thought_chunk")) == (text, thought)
        assert set(ids) == {update["messageId"] for update in editor.told("agent_message_chunk")}
        assert editor.calls() == {name: {**told} for name, told in calls.items()}
        assert editor.told("plan") == plans
        end = editor.log.index(answer)
        await asyncio.sleep(0.1)
        later = [m["params"]["update"]["sessionUpdate"] for m in editor.log[end + 1 :] if "params" in m]
        assert set(later) <= {"available_commands_update"}
        assert await editor.say(session, "Go on.") == "end_turn"


async def test_a_session_that_is_open_can_be_loaded_again(project: Path, hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        session = await editor.new(project)
        await editor.say(session, "Hi.")
        editor.updates.clear()
        await editor.call("session/load", sessionId=session, cwd=str(project), mcpServers=[])
        assert editor.text() == "Hello there."


async def test_resuming_tells_nothing_again_and_the_model_knows_all(project: Path, hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        session = await editor.new(project)
        await editor.say(session, "The word is swordfish.")
        await editor.call("session/close", sessionId=session)
        editor.updates.clear()
        await editor.call("session/resume", sessionId=session, cwd=str(project), mcpServers=[])
        assert not editor.told("user_message_chunk", "agent_message_chunk")
        await editor.say(session, "Which word?")
        said = [e["content"][0]["text"] for e in events(stored()[0]) if e["type"] == "user_message"]
        assert said == ["The word is swordfish.", "Which word?"]


async def test_a_fork_goes_its_own_way(project: Path, hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        session = await editor.new(project)
        await editor.say(session, "First.")
        fork = await editor.call("session/fork", sessionId=session, cwd=str(project), mcpServers=[])
        assert fork["sessionId"] != session
        editor.updates.clear()
        await asyncio.gather(editor.say(session, "Here."), editor.say(fork["sessionId"], "There."))
        assert editor.text(session=session) == editor.text(session=fork["sessionId"]) == "Hello there."
        said = {path.stem: path.read_text() for path in stored()}
        assert "There." in said[fork["sessionId"]]
        assert "There." not in said[session]


async def test_sessions_are_listed_by_folder_and_deleted(project: Path, tmp_path: Path, hello: str) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        assert (await editor.call("session/list"))["sessions"] == []
        first, second = await editor.new(project), await editor.new(other)
        await editor.say(first, "Say hello.")
        listed = (await editor.call("session/list", cwd=str(project)))["sessions"]
        assert [(s["sessionId"], s["cwd"], s["title"]) for s in listed] == [
            (first, str(project), "Say hello.")
        ]
        assert listed[0]["updatedAt"].endswith(("Z", "+00:00"))
        assert {s["sessionId"] for s in (await editor.call("session/list"))["sessions"]} == {first, second}
        await editor.call("session/delete", sessionId=first)
        await editor.call("session/delete", sessionId=first)
        assert {s["sessionId"] for s in (await editor.call("session/list"))["sessions"]} == {second}
        assert (await editor.fail("session/prompt", sessionId=first, prompt=[]))["code"] == -32002
        assert (await editor.fail("session/list", cwd="relative"))["code"] == -32602


async def test_a_long_list_comes_in_pages(project: Path, hello: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aar.transports.acp.server._PAGE", 2)
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        made = {await editor.new(project) for _ in range(3)}
        page = await editor.call("session/list")
        rest = await editor.call("session/list", cursor=page["nextCursor"])
        assert {s["sessionId"] for s in page["sessions"] + rest["sessions"]} == made
        assert "nextCursor" not in rest
        for wrong in ("nonsense", "", "aGVsbG8=", 7):
            assert (await editor.fail("session/list", cursor=wrong))["code"] == -32602


async def test_closing_ends_the_turn_as_cancelled(project: Path, tmp_path: Path) -> None:
    slow = {"text": "word " * 400, "chunk_chars": 5, "chunk_delay_ms": 20}
    async with Editor.inside(model=script(tmp_path / "m.json", slow)) as editor:
        await editor.greet()
        session = await editor.new(project)
        turn = editor.prompt(session, "Speak.")
        await editor.until(lambda: editor.told("agent_message_chunk"))
        assert await editor.call("session/close", sessionId=session) == {}
        assert (await asyncio.wait_for(turn, 60))["result"]["stopReason"] == "cancelled"


async def test_other_folders_can_be_written_when_they_were_added(project: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    model = script(tmp_path / "m.json", call("write_file", path=str(more / "x.txt"), content="x"), "Done.")
    async with Editor.inside(model=model, mode="edit") as editor:
        await editor.greet()
        await editor.say(await editor.new(project, additionalDirectories=[str(more)]), "Write.")
        assert (more / "x.txt").read_text() == "x"
        await editor.say(await editor.new(project, additionalDirectories=None), "Write.")
        assert list(editor.calls().values())[-1]["rawInput"]["path"] == str(more / "x.txt")


async def test_servers_of_the_editor_bring_tools(project: Path, tmp_path: Path) -> None:
    program = str(project / "server.py")
    Path(program).write_text(SERVER)
    server = {
        "name": "my files",
        "command": sys.executable,
        "args": [program],
        "env": [{"name": "A", "value": "b"}],
    }
    async with Editor.inside(model=script(tmp_path / "m.json", "Done.", after="last")) as editor:
        assert (await editor.greet(FULL))["agentCapabilities"]["mcpCapabilities"]["http"] is True
        made = await editor.call("session/new", cwd=str(project), mcpServers=[server])
        assert editor.server is not None
        bridge = editor.server._sessions[made["sessionId"]].conversation.runtime.servers.bridge
        assert bridge is not None
        await until(lambda: any(spec.name == "mcp__my_files__say_b" for spec in bridge.offered()))
        other = await editor.new(project)
        assert editor.server._sessions[other].conversation.runtime.servers.bridge is None


@pytest.mark.parametrize(
    "server", [7, {}, {"name": "x"}, {"name": "x", "command": "y", "args": [1]}, {"name": "x", "type": "acp"}]
)
async def test_servers_that_are_none_are_refused(project: Path, hello: str, server: Any) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        assert (await editor.fail("session/new", cwd=str(project), mcpServers=[server]))["code"] == -32602


# --- settings ------------------------------------------------------------------------------------------------


async def test_mode_and_option_are_one(project: Path, hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        made = await editor.call("session/new", cwd=str(project), mcpServers=[])
        session = made["sessionId"]
        assert made["modes"]["currentModeId"] == "ask"
        ids = [mode["id"] for mode in made["modes"]["availableModes"]]
        assert "unsafe" not in ids
        option = {o["id"]: o for o in made["configOptions"]}["mode"]
        assert (option["currentValue"], [v["value"] for v in option["options"]]) == ("ask", ids)
        assert await editor.call("session/set_mode", sessionId=session, modeId="plan") == {}
        await editor.until(lambda: editor.told("config_option_update"))
        assert editor.told("current_mode_update")[-1]["currentModeId"] == "plan"
        assert editor.told("config_option_update")[-1]["configOptions"][0]["currentValue"] == "plan"
        changed = await editor.call(
            "session/set_config_option", sessionId=session, configId="mode", value="edit"
        )
        assert [o["id"] for o in changed["configOptions"]] == [o["id"] for o in made["configOptions"]]
        assert changed["configOptions"][0]["currentValue"] == "edit"
        assert editor.told("current_mode_update")[-1]["currentModeId"] == "edit"
        for wrong in ("unsafe", "nonsense", 7, None):
            assert (await editor.fail("session/set_mode", sessionId=session, modeId=wrong))["code"] == -32602


async def test_the_model_can_be_changed_also_while_it_speaks(project: Path, tmp_path: Path) -> None:
    slow = {"text": "word " * 60, "chunk_chars": 5, "chunk_delay_ms": 5}
    one, two = (
        script(tmp_path / "a.json", slow, after="last"),
        script(tmp_path / "b.json", "Second.", after="last"),
    )
    async with Editor.inside(model=one) as editor:
        await editor.greet()
        session = await editor.new(project)
        turn = editor.prompt(session, "Speak.")
        await editor.until(lambda: editor.told("agent_message_chunk"))
        changed = await editor.call(
            "session/set_config_option", sessionId=session, configId="model", value=two
        )
        assert changed["configOptions"][1]["currentValue"] == two
        assert (await turn)["result"]["stopReason"] == "end_turn"
        editor.updates.clear()
        await editor.say(session, "And you?")
        assert editor.text() == "Second."
        for option, value in (("model", "nonsense"), ("nothing", "x"), ("mode", True), (7, "x")):
            error = await editor.fail(
                "session/set_config_option", sessionId=session, configId=option, value=value
            )
            assert error["code"] == -32602


# --- content -------------------------------------------------------------------------------------------------


async def test_links_resources_and_images_reach_the_model(project: Path, hello: str) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        session = await editor.new(project)
        await editor.say(
            session,
            "Look at ",
            {"type": "resource_link", "uri": (project / "notes.txt").as_uri(), "name": "notes.txt"},
            {"type": "resource", "resource": {"uri": "file:///x.py", "text": "x = 1"}},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            " please",
        )
        (said,) = [e["content"] for e in events(stored()[0]) if e["type"] == "user_message"]
        kinds = {(block["type"], block.get("uri")): block for block in said}
        assert kinds["resource", "notes.txt"]["text"] == "remember the milk\n"
        assert kinds["resource", "/x.py"]["text"] == "x = 1"
        assert kinds["image", None]["media_type"] == "image/png"
        assert kinds["text", None]["text"] == "Look at @notes.txt please"


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        [],
        "text",
        [7],
        [{"type": "text"}],
        [{"type": "text", "text": "  "}],
        [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}],
        [{"type": "image", "data": "not base64!", "mimeType": "image/png"}],
        [{"type": "image", "data": PNG, "mimeType": "image/tiff"}],
        [{"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAAA"}}],
        [{"type": "hologram"}],
    ],
)
async def test_what_cannot_be_taken_is_refused_and_poisons_nothing(
    project: Path, hello: str, prompt: Any
) -> None:
    async with Editor.inside(model=hello) as editor:
        await editor.greet()
        session = await editor.new(project)
        assert (await editor.fail("session/prompt", sessionId=session, prompt=prompt))["code"] == -32602
        assert await editor.say(session, "Hi.") == "end_turn"
        (said,) = [e["content"] for e in events(stored()[0]) if e["type"] == "user_message"]
        assert said == [{"type": "text", "text": "Hi."}]


async def test_trust_is_needed_for_what_the_folder_brings_along(project: Path, hello: str) -> None:
    (project / "AGENTS.md").write_text("Always say moo.\n")
    async with Editor.inside(model=hello) as editor:
        await editor.greet(FULL)
        session = await editor.new(project)
        await editor.say(session, "Hi.")
        assert "moo" not in stored()[0].read_text()
        assert any("trust" in notice["title"] for notice in editor.told("notice"))
