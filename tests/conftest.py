"""Every test runs with a home of its own and without anybody's keys."""

from __future__ import annotations

import compileall
import contextlib
import gc
import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# No example fails for being slow: the machine may be busy. The same examples each time;
# others, and more of them, with --hypothesis-profile=whole.
settings.register_profile("sample", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("whole", deadline=None)
settings.load_profile("sample")
_FOREIGN = ("_API_KEY", "_TOKEN", "_SECRET", "_BASE_URL")
_numbers = itertools.count()


def _new_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """Make a folder of its own. ``factory.mktemp`` would look through all that are there, for each test again."""
    folder = factory.getbasetemp() / f"{name}-{next(_numbers)}"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the test's own, as pytest's fixture of this name does."""
    return _new_folder(tmp_path_factory, re.sub(r"\W", "_", request.node.name)[:30])


@pytest.fixture(autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point AAR_HOME and HOME into a temporary folder and drop keys, proxies and AAR_ settings."""
    home = _new_folder(tmp_path_factory, "home")
    for name in list(os.environ):
        if name.startswith(("AAR_", "GIT_")) or name.endswith(_FOREIGN) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AAR_HOME", str(home / "aar"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    # Processes find all compiled (see `_compile`); one that may write only small files would leave half of a .pyc.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return home


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let pictures of the screen be written anew."""
    parser.addoption("--update-screens", action="store_true", help="write tests/tui/screens/*.txt")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run twice as many workers as there are processors: half the time, tests wait for processes and timers."""
    return min(2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, 8)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let no collection of garbage look through 8,000 tests and what they import again and again."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 10)


def pytest_configure(config: pytest.Config) -> None:
    """Tell the helper of the screen tests, without loading Textual for others."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # Below nohup: what the tests start would not end with its terminal. A handler is not inherited.
        signal.signal(signal.SIGHUP, lambda *_: None)
    if not hasattr(config, "workerinput"):
        _take_temporary_folder(config)
        _compile(config)
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


def _compile(config: pytest.Config) -> None:
    """Compile aar once, not in each process that a test starts; elsewhere where the tree cannot be written."""
    source = config.rootpath / "aar"
    if not compileall.compile_dir(source, quiet=2):
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = f"{os.environ['TMPDIR']}/pycache"
        compileall.compile_dir(source, quiet=2)
