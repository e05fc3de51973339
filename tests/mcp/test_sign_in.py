"""Signing in over OAuth to a real server on the loopback: discovery, registration, PKCE, renewal, refusal."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from aar.commands.base import Text
from aar.config.schema import McpServerConfig
from aar.extensions.mcp_logins import LoginStore
from aar.extensions.mcp_oauth import check_address, make_auth, sign_in
from aar.protocol.errors import McpError
from tests.mcp.world import opened
from tests.support.minds import place
from tests.support.waiting import until

SERVER = Path(__file__).with_name("oauth_server.py")


@asynccontextmanager
async def guarded(folder: Path, seconds: int = 3600) -> AsyncIterator[str]:
    """Yield the address of a server that lets in only who signed in."""
    file = folder / "port"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), str(file), str(seconds), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: (file.exists() and file.read_text()) or process.returncode is not None)
        yield f"{file.read_text()}/mcp"
    finally:
        process.kill()
        await process.wait()


class Browser:
    """Opens the page as a person's browser would."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self._tasks: list[asyncio.Task[object]] = []

    async def __call__(self, address: str) -> None:
        import httpx2

        self.pages.append(address)

        async def go() -> None:
            async with httpx2.AsyncClient(follow_redirects=True) as client:
                await client.get(address)

        self._tasks.append(asyncio.create_task(go()))


def world_of(folder: Path, url: str, store: LoginStore, transport: str = "auto") -> object:
    server = {"url": url, "transport": transport}
    return opened(folder / "ws", {"guarded": server}, make_auth=partial(make_auth, store=store))


async def test_a_server_is_signed_in_to_with_pkce_and_a_port_of_the_kernel_and_stays_so(
    tmp_path: Path,
) -> None:
    store, browser = LoginStore(tmp_path / "config"), Browser()
    async with guarded(tmp_path, seconds=2) as url:
        for transport in ("sse", "auto"):
            async with world_of(tmp_path, url, store, transport) as world:
                [news] = await world.bridge.settle(60)
                assert "`aar mcp login guarded`" in news
        assert await sign_in("guarded", McpServerConfig(url=url), store, browser) is True

        asked = parse_qs(urlsplit(browser.pages[0]).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["redirect_uri"][0].startswith("http://127.0.0.1:")
        assert asked["resource"] == [url]
        kept = json.loads((tmp_path / "config/keys.json").read_text())["keys"]
        assert [(item["provider"], item["where"]) for item in kept] == [("mcp:guarded", "file")]
        assert (tmp_path / "config/keys.json").stat().st_mode & 0o077 == 0

        first = store.load("guarded", url)
        assert first is not None
        store.save("guarded", url, {**first, "expires_at": 1.0})  # as if hours had gone by
        async with world_of(tmp_path, url, store) as world:
            assert await world.bridge.settle(60) == []
            assert int((await world.call("mcp__guarded__renewals")).output) >= 1
            second = store.load("guarded", url)
            assert second is not None
            assert second["tokens"] != first["tokens"]
            assert len(browser.pages) == 1

            await world.call("mcp__guarded__forget")
            assert await world.bridge.restart("guarded") is False
            assert "`aar mcp login guarded`" in world.bridge.status()[0].detail


async def test_tokens_are_for_one_address_only(tmp_path: Path) -> None:
    store = LoginStore(tmp_path)
    store.save("docs", "https://one.example/mcp", {"tokens": {"access_token": "secret"}})
    assert store.load("docs", "https://one.example/mcp") is not None
    for url in (
        "https://two.example/mcp",
        "https://one.example/other",
        "https://one.example@two.example/mcp",
    ):
        assert store.load("docs", url) is None
        assert make_auth("docs", McpServerConfig(url="https://two.example/mcp"), store) is None
    assert store.forget("docs") is True
    assert store.load("docs", "https://one.example/mcp") is None


@pytest.mark.parametrize(
    ("address", "server", "good"),
    [
        ("https://login.example/authorize", "https://mcp.example/mcp", True),
        ("http://127.0.0.1:1/authorize", "http://127.0.0.1:2/mcp", True),
        ("http://login.example/authorize", "https://mcp.example/mcp", False),
        ("http://169.254.169.254/token", "https://mcp.example/mcp", False),
        ("https://localhost/token", "https://mcp.example/mcp", False),
        ("file:///etc/passwd", "https://mcp.example/mcp", False),
        ("javascript:alert(1)", "http://127.0.0.1:2/mcp", False),
    ],
)
def test_a_server_may_not_lead_its_sign_in_anywhere(address: str, server: str, good: bool) -> None:
    if good:
        assert check_address(address, server) is None
    else:
        with pytest.raises(McpError, match="not trusted"):
            check_address(address, server)


async def test_a_browser_that_comes_with_another_state_is_not_heard(tmp_path: Path) -> None:
    store, pages = LoginStore(tmp_path / "config"), list[str]()

    async def show(address: str) -> None:
        import httpx2

        pages.append(address)
        asked = parse_qs(urlsplit(address).query)

        async def go() -> None:
            async with httpx2.AsyncClient(follow_redirects=True) as client:
                back = asked["redirect_uri"][0]
                forged = await client.get(f"{back}?code=stolen&state=guessed")
                assert forged.status_code == 404
                refused = await client.get(f"{back}?error=access_denied&state={asked['state'][0]}")
                assert refused.status_code == 200

        tasks.append(asyncio.create_task(go()))

    tasks: list[asyncio.Task[None]] = []
    async with guarded(tmp_path) as url:
        with pytest.raises(McpError, match="was refused: access_denied"):
            await sign_in("guarded", McpServerConfig(url=url), store, show)
    await tasks[0]
    assert store.load("guarded", url) is None


async def test_the_command_shows_servers_and_signs_in(tmp_path: Path) -> None:
    from aar.commands.base import Context, Table
    from aar.commands.from_files import registry_for
    from aar.runtime.conversation import Conversation

    async with guarded(tmp_path) as url:
        sets = (f'mcp.servers.guarded.url="{url}"',)
        async with place(tmp_path, lambda ask: "hello", sets=sets) as here:
            conversation = Conversation(here.runtime, here.session)
            registry = registry_for(conversation)
            context = Context(conversation, registry)
            bridge = here.runtime.servers.bridge
            assert bridge is not None
            await bridge.settle(60)
            table = await registry.run_line(context, "/mcp")
            assert isinstance(table, Table)
            assert table.rows[0][:2] == ("guarded", "failed")
            begun = await registry.run_line(context, "/mcp login guarded")
            assert isinstance(begun, Text)
            await Browser()(begun.markdown.split()[-1])
            await until(lambda: bridge.links["guarded"].state == "ready")
            shown = await registry.run_line(context, "/mcp guarded")
            assert isinstance(shown, Text)
            assert "renewals" in shown.markdown
            assert registry.complete(context, "/mcp re") == ["/mcp restart guarded"]
            gone = await registry.run_line(context, "/mcp logout guarded")
            assert gone == Text("The tokens of guarded are forgotten.")
            assert bridge.links["guarded"].state == "off"
            secrets = [event.model_dump_json() for event in here.session.events()]
            assert not [text for text in secrets if "access_token" in text or "refresh" in text]
