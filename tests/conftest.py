"""Every test runs with a home of its own and without anybody's keys."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# No example fails for being slow: the machine may be busy.
settings.register_profile("any machine", settings(), deadline=None)
settings.load_profile("any machine")
_FOREIGN = ("_API_KEY", "_TOKEN", "_SECRET", "_BASE_URL")


@pytest.fixture(autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point AAR_HOME and HOME into a temporary folder and drop keys, proxies and AAR_ settings."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("AAR_", "GIT_")) or name.endswith(_FOREIGN) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AAR_HOME", str(home / "aar"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return home


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let pictures of the screen be written anew."""
    parser.addoption("--update-screens", action="store_true", help="write tests/tui/screens/*.txt")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run twice as many workers as there are processors: half the time, tests wait for processes and timers."""
    return min(2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, 8)


def pytest_configure(config: pytest.Config) -> None:
    """Tell the helper of the screen tests, without loading Textual for others."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # Below nohup: what the tests start would not end with its terminal. A handler is not inherited.
        signal.signal(signal.SIGHUP, lambda *_: None)
    if not hasattr(config, "workerinput"):
        _take_temporary_folder(config)
    os.environ.pop("AAR_UPDATE_SCREENS", None)
    if config.getoption("--update-screens"):
        os.environ["AAR_UPDATE_SCREENS"] = "1"


def _take_temporary_folder(config: pytest.Config) -> None:
    """Let what tests start, and kill before it can tidy up, keep its temporary files where they are removed."""
    tempfile.gettempdir()  # remembered: folders of failed tests stay where pytest puts them
    folder = tempfile.mkdtemp(prefix="aar-tests-")
    os.environ["TMPDIR"] = folder

    def remove(_function: object, path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(path)  # what hides folders may not be looked into

    config.add_cleanup(lambda: shutil.rmtree(folder, onerror=remove))
