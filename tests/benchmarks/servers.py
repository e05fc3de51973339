"""First frame and start with ten MCP servers configured, beside none: ``python -m tests.benchmarks.servers``."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.first_frame import first_frame

ROUNDS = 5
SERVERS = 10


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        homes = {"no servers": Path(folder) / "none", f"{SERVERS} servers": Path(folder) / "many"}
        for name, home in homes.items():
            (home / "config").mkdir(parents=True)
            (home / "s.json").write_text('{"steps": [{"text": "hi"}]}')
            if name != "no servers":
                server = Path(__file__).parents[1] / "mcp/sdk_server.py"
                lines = [
                    f'[mcp.servers.s{number}]\ncommand = "{sys.executable}"\nargs = ["{server}"]'
                    for number in range(SERVERS)
                ]
                (home / "config/config.toml").write_text("\n".join(lines))
        times: dict[str, list[float]] = {name: [] for name in homes}
        for _ in range(ROUNDS):
            for name, home in homes.items():
                argv = [sys.executable, "-m", "aar", "tui", "--model", f"scripted/{home}/s.json"]
                times[name].append(first_frame(argv, b"ype a task", home))
        for name, found in times.items():
            print(f"{name:12} first frame: median {statistics.median(found):.3f} s, best {min(found):.3f} s")


if __name__ == "__main__":
    main()
