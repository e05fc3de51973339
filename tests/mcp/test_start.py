"""Servers cost nothing before they are needed, and no first frame waits for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.mcp.world import opened, sdk

_PROBE = """
import sys
from aar.runtime import open_runtime
runtime = open_runtime(interactive=True, model="scripted/" + sys.argv[1], mode="ask")
print(len(runtime.servers.bridge.links), [name for name in sys.modules if name.split(".")[0] in ("mcp", "mcp_types")])
runtime.spawner.close()
"""


def test_opening_with_ten_servers_starts_none_and_loads_no_sdk(
    tmp_path: Path, clean_environment: Path
) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"steps": [{"text": "hello"}]}))
    folder = clean_environment / "aar/config"
    folder.mkdir(parents=True)
    servers = [f'[mcp.servers.s{number}]\ncommand = "no-such-server"\n' for number in range(10)]
    (folder / "config.toml").write_text("\n".join(servers))
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, str(tmp_path / "s.json")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split(maxsplit=1) == ["10", "[]\n"], done.stderr


async def test_a_lazy_server_is_left_alone_by_a_start(tmp_path: Path) -> None:
    async with opened(tmp_path / "ws", {"idle": sdk(lazy=True)}) as world:
        world.bridge.start()
        assert world.bridge.status()[0].state == "off"
        assert await world.bridge.settle(0.01) == []
        assert world.bridge.status()[0].state == "off"
