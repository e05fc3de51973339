"""Prints what extensions cost at the start: ``python -m tests.benchmarks.extensions [RUNS]``.

Compares the start of ``aar run`` to its first request with no extensions and with 20, the least of the runs
each (of the clock and of the processor), and tells which modules of extensions are imported where there are none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from aar.extensions.template import template
from tests.benchmarks.startup import first_request
from tests.support.model_server import Reply, model_server

COUNT = 20
ONLY_WITH_EXTENSIONS = ("aar.extensions.api", "aar.extensions.loader", "aar.extensions.in_session")
_IMPORTED = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); sys.argv = ['aar', *sys.argv[1:]]; from aar.__main__ import main; sys.exit(main())"


def main() -> int:
    """Measure and print; the exit code is 1 when something is imported that nobody needs."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory(prefix="aar-extensions-") as name:
        folder = Path(name)
        project = folder / "project"
        (project / ".git").mkdir(parents=True)
        least: dict[int, tuple[float, float]] = {}
        for count in (0, COUNT):
            env = environment(folder, count)
            first_request(project, env)
        for _ in range(runs):
            for count in (0, COUNT):
                told = measured(project, environment(folder, count))
                least[count] = (
                    min(told[0], least.get(count, told)[0]),
                    min(told[1], least.get(count, told)[1]),
                )
        for count, (seconds, busy) in least.items():
            print(f"{count:2} extensions: first request after {seconds:6.3f} s; {busy:6.3f} s of CPU in all")
        print(f"each extension costs {(least[COUNT][1] - least[0][1]) / COUNT * 1000:.1f} ms of CPU")
        needless = imported(project, environment(folder, 0)) & set(ONLY_WITH_EXTENSIONS)
        print(f"imported without extensions: {', '.join(sorted(needless)) or 'none of theirs'}")
    return 1 if needless else 0


def measured(cwd: Path, env: dict[str, str]) -> tuple[float, float]:
    """Return the seconds to the first request, and those of CPU that the whole process took."""
    before = os.times()
    seconds = first_request(cwd, env)
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, busy


def environment(folder: Path, count: int) -> dict[str, str]:
    """Return the environment of a user with ``count`` extensions."""
    home = folder / f"home{count}"
    extensions = home / "config" / "extensions"
    if count and not extensions.exists():
        extensions.mkdir(parents=True)
        for number in range(count):
            (extensions / f"ext{number}.py").write_text(template(f"ext{number}"))
    env = {
        **os.environ,
        "AAR_HOME": str(home),
        "PYTHONPYCACHEPREFIX": str(folder / "pyc"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


def imported(cwd: Path, env: dict[str, str]) -> set[str]:
    """Return the modules that a short run imports."""
    with model_server([Reply(text="Hello.")]) as server:
        arguments = ["run", "--model", "openai-compatible/m", "--base-url", server.base_url, "go"]
        ended = subprocess.run(
            [sys.executable, "-c", _IMPORTED, *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
    return set(ended.stderr.split())


if __name__ == "__main__":
    sys.exit(main())
