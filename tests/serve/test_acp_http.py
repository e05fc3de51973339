"""`aar acp --http`: the official client over streamable HTTP, and what it may not do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from aar.transports.acp.bounds import Bounds
from aar.transports.acp.http import PATH, Remotes, make_app
from aar.transports.serve.listen import address, bound, serving
from tests.acp.test_clients import STEPS, client
from tests.cli.support import aar, call, script
from tests.serve.support import TOKEN
from tests.support.waiting import until

HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


@asynccontextmanager
async def remotes(model: str, *folders: Path, **limits: Any) -> AsyncIterator[tuple[str, Remotes]]:
    served = Remotes({"model": model}, folders)
    listening = bound("127.0.0.1", 0)
    async with serving(make_app(served, TOKEN, **limits), listening):
        try:
            yield address(listening) + PATH, served
        finally:
            await served.aclose()


@asynccontextmanager
async def editor(url: str, told_to: Any) -> AsyncIterator[Any]:
    import acp  # takes a second: only for the tests that run it
    import httpx
    from acp.http import create_http_stream

    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(timeout=None, trust_env=False) as http:
        transport = create_http_stream(url, client=http, headers=headers)
        agent = acp.connect_to_agent(told_to, transport)
        try:
            yield agent
        finally:
            await transport.close()
            await agent.close()


def words(text: str) -> Any:
    """Return a prompt of text."""
    from acp import schema

    return schema.TextContentBlock(type="text", text=text)


async def test_the_official_client_gets_through_whole_turns(project: Path, tmp_path: Path) -> None:
    from acp import schema

    told_to = client()
    async with (
        remotes(script(tmp_path / "m.json", *STEPS), project) as (url, _),
        editor(url, told_to) as agent,
    ):
        files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        told = schema.ClientCapabilities(fs=files)
        greeting = await agent.initialize(protocol_version=1, client_capabilities=told)
        assert greeting.agent_info.name == "aar"
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        text = words("Edit it.")
        async with asyncio.timeout(60):
            answer = await agent.prompt(prompt=[text], session_id=session.session_id)
        assert answer.stop_reason == "end_turn"
    assert (project / "notes.txt").read_text() == "remember the bread\n"
    kinds = {update.session_update for update in told_to.updates}
    assert {"agent_message_chunk", "tool_call", "tool_call_update", "usage_update"} <= kinds


async def test_a_loaded_session_is_told_again_and_goes_on(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", "First.", "Second.", select="history")
    text = words("Say it.")
    async with remotes(model, project) as (url, _):
        async with editor(url, client()) as agent:
            await agent.initialize(protocol_version=1)
            session_id = (await agent.new_session(cwd=str(project), mcp_servers=[])).session_id
            await agent.prompt(prompt=[text], session_id=session_id)
        told_to = client()
        async with editor(url, told_to) as agent, asyncio.timeout(60):
            await agent.initialize(protocol_version=1)
            await agent.load_session(cwd=str(project), session_id=session_id, mcp_servers=[])
            said = [update.content.text for update in told_to.updates if hasattr(update, "content")]
            assert said == ["Say it.", "First."]
            await agent.prompt(prompt=[text], session_id=session_id)
        said = [update.content.text for update in told_to.updates if hasattr(update, "content")]
        assert "".join(said[2:]) == "Second."


async def test_the_same_checks_hold(project: Path, tmp_path: Path) -> None:
    right = {"authorization": f"Bearer {TOKEN}"}
    served = remotes(script(tmp_path / "m.json", "Hi."), max_body=5000)
    async with served as (url, _), httpx2.AsyncClient(trust_env=False) as http:

        async def status(method: str = "POST", **given: Any) -> int:
            headers = {**right, **given.pop("headers", {})}
            return (await http.request(method, url, headers=headers, **given)).status_code

        assert await status(json=HELLO, headers={"authorization": "Bearer no"}) == 401
        assert await status(json=HELLO, headers={"host": "evil.example"}) == 403
        assert await status(json=HELLO, headers={"origin": "http://evil.example"}) == 403
        assert await status(json={**HELLO, "params": {"x": "y" * 6000}}) == 413
        assert await status(content=b"{", headers={"content-type": "application/json"}) == 400
        assert await status(content=b"{}", headers={"content-type": "text/plain"}) == 415
        assert await status(json={"jsonrpc": "2.0", "id": 2, "method": "session/list"}) == 404
        assert await status("GET") == 404
        greeting = await http.post(url, json=HELLO, headers=right)
        known = {"acp-connection-id": greeting.headers["acp-connection-id"]}
        assert await status("GET", headers={**known, "acp-session-id": "none"}) == 404
        assert await status("DELETE", headers=known) == 202
        assert await status("DELETE", headers=known) == 404


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Any]:
    """Greet; gives a function that sends a request by POST and reads its answer from the stream."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(trust_env=False, headers=headers, timeout=30) as http:
        greeting = await http.post(url, json=HELLO)
        http.headers["acp-connection-id"] = greeting.headers["acp-connection-id"]
        async with http.stream("GET", url) as stream:
            lines = stream.aiter_lines()

            async def ask(method: str, **params: Any) -> dict[str, Any]:
                sent = {"jsonrpc": "2.0", "id": f"{method}-{params}", "method": method, "params": params}
                assert (await http.post(url, json=sent)).status_code == 202
                async for line in lines:
                    if line.startswith("data: ") and (said := json.loads(line[6:])).get("id") == sent["id"]:
                        return said
                raise AssertionError("the stream ended")

            yield ask


async def test_sessions_work_only_in_folders_that_the_server_was_given(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", "Hi.", select="history")
    other, secret = tmp_path / "other", tmp_path / "secret"
    for folder in (other / "below", secret, tmp_path / "project-2"):
        folder.mkdir(parents=True)
    (project / "way-out").symlink_to(secret)
    # A session that whoever sits at the machine had elsewhere.
    done = aar("run", "--model", model, "--output", "json", "A secret.", cwd=secret)
    theirs = done.json["session_id"]
    async with remotes(model, project, other) as (url, _), raw(url) as ask:
        for inside in (project, other, other / "below"):
            opened = await ask("session/new", cwd=str(inside), mcpServers=[])
            assert opened["result"]["sessionId"], opened
        outside = [secret, tmp_path, tmp_path / "project-2", project / "way-out", project / ".." / "secret"]
        for folder in (*outside, tmp_path / "nowhere", Path("/")):
            refused = (await ask("session/new", cwd=str(folder), mcpServers=[]))["error"]
            assert refused["code"] == -32602
            assert f"cwd {folder} is not served" in refused["message"]
            assert f"{project} and {other}" in refused["message"]
        more = await ask("session/new", cwd=str(project), mcpServers=[], additionalDirectories=[str(secret)])
        assert "additionalDirectories" in more["error"]["message"]
        for method in ("session/load", "session/resume", "session/fork"):
            for folder, code in ((project, -32002), (secret, -32602)):
                answer = await ask(method, sessionId=theirs, cwd=str(folder), mcpServers=[])
                assert answer["error"]["code"] == code, answer
        assert (await ask("session/list", cwd=str(secret)))["error"]["code"] == -32602
        listed = (await ask("session/list"))["result"]["sessions"]
        assert theirs not in {session["sessionId"] for session in listed}
        assert (await ask("session/delete", sessionId=theirs))["result"] == {}
    assert aar("sessions", "show", theirs, cwd=secret).code == 0


def test_a_link_that_changes_after_it_was_judged_leads_nowhere_else(tmp_path: Path) -> None:
    for name in ("served/below", "secret"):
        (tmp_path / name).mkdir(parents=True)
    link = tmp_path / "served" / "link"
    link.symlink_to("below")
    folder = Bounds([tmp_path / "served"]).demand(link, "cwd")
    link.unlink()
    link.symlink_to(tmp_path / "secret")
    assert folder == (tmp_path / "served" / "below").resolve()


async def test_sessions_of_a_folder_in_a_project_are_found_again(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", "Hi.", select="history")
    (project / "sub").mkdir()
    (project / "beside").mkdir()
    folder = str(project / "sub")
    ran = aar("run", "--model", model, "--output", "json", "Say it.", cwd=project / "sub")
    async with remotes(model, project / "sub") as (url, _), raw(url) as ask:
        assert "error" in await ask("session/new", cwd=str(project / "beside"), mcpServers=[])
        known = ran.json["session_id"]
        listed = (await ask("session/list", cwd=folder))["result"]["sessions"]
        assert known in {session["sessionId"] for session in listed}
        assert "result" in await ask("session/resume", sessionId=known, cwd=folder, mcpServers=[])


async def test_a_client_that_leaves_ends_what_it_began(project: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("bash", command="touch begun; sleep 60"), "Never.")
    async with remotes(model, project) as (url, served):
        async with editor(url, client()) as agent:
            await agent.initialize(protocol_version=1)
            session_id = (await agent.new_session(cwd=str(project), mcp_servers=[])).session_id
            text = words("Wait.")
            asking = asyncio.ensure_future(agent.prompt(prompt=[text], session_id=session_id))
            [remote] = served._remotes.values()
            await until(lambda: (project / "begun").exists())
        assert served._remotes == {}
        assert not remote.server.has_session(session_id)
        asking.cancel()
