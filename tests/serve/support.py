"""A server in this process, on a port of its own, and clients of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from aar.transports.serve.app import make_app
from aar.transports.serve.house import House
from aar.transports.serve.listen import address, bound, serving

TOKEN = "a-token-for-tests-of-the-server"


@dataclass
class Served:
    """A server and a client that knows its token."""

    url: str
    house: House
    http: httpx2.AsyncClient

    async def get(self, path: str, **params: Any) -> Any:
        """Return the body of a GET that succeeded."""
        answer = await self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, status: int = 0) -> Any:
        """Return the body of a POST that succeeded, or ended with ``status``."""
        answer = await self.http.post(path, json={} if body is None else body)
        assert answer.status_code == status if status else answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def session(self, **wish: Any) -> str:
        """Begin a session and return its id."""
        return (await self.post("/api/sessions", wish))["id"]

    async def asked(self, session_id: str) -> dict[str, Any]:
        """Wait for a question and return it."""
        async with asyncio.timeout(60):
            while not (found := (await self.get(f"/api/sessions/{session_id}/approvals"))["approvals"]):
                await asyncio.sleep(0.02)
        return found[0]

    async def idle(self, session_id: str) -> dict[str, Any]:
        """Wait until nothing runs and return the state."""
        async with asyncio.timeout(60):
            while (state := await self.get(f"/api/sessions/{session_id}"))["running"]:
                await asyncio.sleep(0.02)
        return state

    @asynccontextmanager
    async def watching(self, session_id: str, last: int | None = None, **params: Any) -> AsyncIterator[Any]:
        """Watch a session: gives an iterator over ``(id, event)``."""
        headers = {} if last is None else {"last-event-id": str(last)}
        path = f"/api/sessions/{session_id}/events"
        async with self.http.stream("GET", path, headers=headers, params=params) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield frames(answer)


async def frames(answer: httpx2.Response) -> AsyncIterator[tuple[str | None, Any]]:
    """Yield id and data of each event of a stream."""
    name: str | None = None
    async for line in answer.aiter_lines():
        if line.startswith("id: "):
            name = line[4:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:]) if line != "data: [DONE]" else None
            name = None


@asynccontextmanager
async def served(project: Path, model: str, **options: Any) -> AsyncIterator[Served]:
    """Serve ``project`` while the block lasts."""
    max_body = options.pop("max_body", None)
    house = House({"cwd": project, "model": model, **options})
    listening = bound("127.0.0.1", 0)
    url = address(listening)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        serving(make_app(house, TOKEN, max_body=max_body), listening),
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as http,
    ):
        try:
            yield Served(url, house, http)
        finally:
            await house.aclose()
