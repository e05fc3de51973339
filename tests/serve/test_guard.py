"""Who may come in: token, host, origin, size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aar.protocol.errors import ConfigurationError, UsageError
from aar.transports.serve.app import ENDPOINTS, OPEN_PATHS
from aar.transports.serve.command import demand_names
from aar.transports.serve.secret import token_from
from tests.cli.support import script
from tests.serve.support import TOKEN, served


async def test_nothing_of_the_project_is_told_without_the_token(project: Path, tmp_path: Path) -> None:
    async with served(project, script(tmp_path / "m.json", "Hello.")) as server:
        wrong = ({}, {"authorization": "Bearer no"}, {"authorization": TOKEN}, {"x-api-key": TOKEN[:-1]})
        for place, endpoint in enumerate(ENDPOINTS):
            path = endpoint.path.replace("{name:path}", "aar")
            for headers in wrong if place == 0 else wrong[:1]:
                told = {"authorization": "", **headers}
                answer = await server.http.request(endpoint.method, path, headers=told)
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.json()["error"]["type"] == "authentication_error"
        for path in OPEN_PATHS:
            answer = await server.http.get(path, headers={"authorization": ""})
            assert answer.status_code == 200, path
            assert "milk" not in answer.text
            assert str(project) not in answer.text
        key = await server.http.get("/api/sessions", headers={"authorization": "", "x-api-key": TOKEN})
        assert key.status_code == 200


async def test_a_name_that_was_made_to_lead_here_is_not_answered(project: Path, tmp_path: Path) -> None:
    async with served(project, script(tmp_path / "m.json", "Hello.")) as server:
        port = server.url.rpartition(":")[2]
        for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", ""):
            for path in ("/", "/api/sessions"):
                assert (await server.http.get(path, headers={"host": host})).status_code == 403, host
        for host in ("localhost", f"localhost:{port}", f"[::1]:{port}", "LOCALHOST"):
            assert (await server.http.get("/api/sessions", headers={"host": host})).status_code == 200, host


async def test_pages_of_other_sites_may_not_call(project: Path, tmp_path: Path) -> None:
    async with served(project, script(tmp_path / "m.json", "Hello.")) as server:
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", ""):
            answer = await server.http.post("/api/sessions", headers={"origin": origin}, json={})
            assert answer.status_code == 403, origin
            assert "access-control-allow-origin" not in answer.headers
        answer = await server.http.get("/api/sessions", headers={"origin": server.url})
        assert answer.status_code == 200


async def test_bodies_have_a_limit_whether_or_not_they_tell_their_length(
    project: Path, tmp_path: Path
) -> None:
    async def pieces():
        for _ in range(30):
            yield b"x" * 1000

    async with served(project, script(tmp_path / "m.json", "Hello."), max_body=10_000) as server:
        told = await server.http.post("/api/sessions", content=b"x" * 10_001)
        assert told.status_code == 413
        untold = await server.http.post("/api/sessions", content=pieces())
        assert untold.status_code == 413
        assert untold.json()["error"]["type"] == "request_too_large"
        assert (await server.http.post("/api/sessions", json={})).status_code == 201


async def test_every_answer_forbids_what_a_page_does_not_need(project: Path, tmp_path: Path) -> None:
    async with served(project, script(tmp_path / "m.json", "Hello.")) as server:
        for path in ("/", "/page.js", "/docs", "/api/sessions", "/nothing"):
            headers = (await server.http.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
        for name in ("index.html", "page.js", "page.css"):
            text = (Path(make_app_folder()) / name).read_text()
            assert "://" not in text, "the page asks nobody else"
            assert "innerHTML" not in text
            assert "<style" not in text
            assert " onclick=" not in text


def make_app_folder() -> str:
    from aar.transports.serve import app

    return str(Path(app.__file__).parent / "page")


def test_a_token_is_new_each_time_or_kept_for_its_owner_alone(tmp_path: Path) -> None:
    assert token_from(None) != token_from(None)
    file = tmp_path / "token"
    token = token_from(file)
    assert len(token) >= 40
    assert file.stat().st_mode & 0o777 == 0o600
    assert token_from(file) == token
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match="read by others"):
        token_from(file)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(ConfigurationError, match="holds no token"):
        token_from(file)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        token_from(tmp_path / "nowhere" / "token")
    os.mkfifo(tmp_path / "pipe", 0o600)
    os.symlink(file, tmp_path / "link")
    with pytest.raises(ConfigurationError, match="holds no token"):
        token_from(tmp_path / "link")


def test_whoever_listens_everywhere_must_say_for_which_name() -> None:
    with pytest.raises(UsageError, match="--allow-host"):
        demand_names("0.0.0.0", [])
    assert demand_names("0.0.0.0", ["box.lan"]) == ["box.lan"]
    assert demand_names("127.0.0.1", []) == ["127.0.0.1"]
