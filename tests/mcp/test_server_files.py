"""Servers in the files of other assistants, and which of two of one name counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import McpServerConfig
from aar.extensions.mcp_config import gather, parse_servers, read_servers, safe_name
from aar.protocol.errors import ConfigurationError


def one(tables: dict[str, Any]) -> McpServerConfig:
    (spec,) = parse_servers(tables, "user", "test").values()
    return spec.config


def test_each_usual_shape_is_read() -> None:
    claude = one({"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "${KEY}"}}}})
    assert (claude.command, claude.args, claude.env) == ("npx", ("-y", "x"), {"K": "${KEY}"})
    http = one({"mcpServers": {"a": {"type": "http", "url": "https://x.example/mcp", "headers": {"A": "b"}}}})
    assert (http.url, http.headers, http.transport) == ("https://x.example/mcp", {"A": "b"}, "auto")
    assert one({"mcpServers": {"a": {"type": "sse", "url": "https://x.example/sse"}}}).transport == "sse"
    assert one({"mcpServers": {"a": {"httpUrl": "https://g.example"}}}).url == "https://g.example"
    code = one(
        {"servers": {"a": {"type": "stdio", "command": "x", "args": ["${workspaceFolder}", "${env:T}"]}}}
    )
    assert code.args == (".", "${T}")
    codex = one({"mcp_servers": {"a": {"url": "https://c.example", "bearer_token_env_var": "TOK"}}})
    assert codex.headers == {"Authorization": "Bearer ${TOK}"}
    opencode = one(
        {"mcp": {"a": {"type": "local", "command": ["bun", "x"], "environment": {"A": "{env:B}"}}}}
    )
    assert (opencode.command, opencode.args, opencode.env) == ("bun", ("x",), {"A": "${B}"})
    zed = one({"context_servers": {"a": {"command": {"path": "p", "args": ["q"], "env": {"E": "f"}}}}})
    assert (zed.command, zed.args, zed.env) == ("p", ("q",), {"E": "f"})
    assert one({"mcpServers": {"a": {"command": "x", "disabled": True}}}).enabled is False


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({}, "defines no MCP servers"),
        ({"mcpServers": {"a": {}}}, "either a command"),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": 5}}}}, "env.K"),
        ({"mcpServers": {"a": "x"}}, "must be an object"),
        ({"mcpServers": {"a": {"url": "ftp://x"}}}, "http:// or https://"),
        ({"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "y"}}}, "two MCP servers"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(tables: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_servers(tables, "user", "test")


def test_names_become_names_that_tools_can_have() -> None:
    assert safe_name("My Server (beta)") == "My_Server_beta"
    assert safe_name("a__b") == "a_b"
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        safe_name("///")


def test_the_users_server_comes_before_the_projects_which_stays_walled(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "a": {"command": "theirs"},
                    "b": {"command": "x", "sandbox": False, "network": True},
                }
            }
        )
    )
    named = tmp_path / "named.json"
    named.write_text(json.dumps({"mcpServers": {"c": {"command": "named"}}}))
    mine = {"a": McpServerConfig(command="mine")}
    found, notices = gather(mine, (), tmp_path, trusted=True, files=[named])
    assert notices == []
    assert {name: spec.config.command for name, spec in found.items()} == {
        "a": "mine",
        "b": "x",
        "c": "named",
    }
    assert found["b"].scope == "project"
    assert found["b"].config.sandbox
    assert not found["b"].config.network
    untrusted, _ = gather(mine, (), tmp_path, trusted=False)
    assert set(untrusted) == {"a"}


def test_a_broken_file_of_the_project_is_news_and_one_that_was_named_an_error(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text("{")
    found, notices = gather({}, (), tmp_path, trusted=True)
    assert found == {}
    assert "is not JSON" in notices[0]
    with pytest.raises(ConfigurationError, match="is not JSON"):
        gather({}, (), tmp_path, trusted=False, files=[tmp_path / ".mcp.json"])
    with pytest.raises(ConfigurationError, match="there is no such file"):
        gather({}, (), tmp_path, trusted=False, files=[tmp_path / "none.json"])
    assert read_servers(tmp_path / "none.json", "user") is None


def test_variables_are_replaced_when_used_and_a_missing_one_names_its_server() -> None:
    spec = parse_servers(
        {"mcpServers": {"a": {"command": "x", "env": {"K": "${MISSING_ONE}"}}}}, "user", "f.json"
    )["a"]
    assert spec.expanded({"MISSING_ONE": "v"}).env == {"K": "v"}
    with pytest.raises(ConfigurationError, match=r"MCP server a .*MISSING_ONE"):
        spec.expanded({})
