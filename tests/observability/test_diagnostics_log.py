"""The log holds no secrets, stays in its bounds and never reaches the terminal."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aar.config.schema import LogConfig
from aar.observability import diagnostics_log
from aar.observability.diagnostics_log import close_logging, setup_logging, tail, trace, trace_enabled

SECRET = "sk-0123456789"


def redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


@dataclass(frozen=True)
class Settings:
    level: str = "info"
    trace: tuple[str, ...] = ()


@pytest.fixture(autouse=True)
def clean_logging() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    close_logging()
    logging.getLogger().setLevel(level)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data/logs"


def test_nothing_is_opened_before_the_first_record(folder: Path) -> None:
    file = setup_logging(LogConfig(), folder, redact)
    assert not folder.exists()
    logging.getLogger("aar.core").info("hello")
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    (line,) = file.read_text().splitlines()
    assert line.endswith("aar.core: hello")
    assert " INFO " in line


def test_t18_secrets_are_redacted_in_messages_arguments_tracebacks_and_traffic(folder: Path) -> None:
    file = setup_logging(Settings(trace=("llm",)), folder, redact)
    log = logging.getLogger("aar.x")
    log.warning("key %s", SECRET)
    log.warning(SECRET)
    try:
        raise ValueError(f"bad key {SECRET}")
    except ValueError:
        log.exception("failed")
    trace("llm", "request", f"Authorization: Bearer {SECRET}".encode())
    text = file.read_text()
    assert SECRET not in text
    assert text.count("[redacted]") == 4
    assert "Traceback" in text


def test_a_record_is_left_out_when_it_cannot_be_redacted(folder: Path) -> None:
    def broken(text: str) -> str:
        raise RuntimeError

    file = setup_logging(Settings(), folder, broken)
    logging.getLogger("aar.x").warning("key %s", SECRET)
    assert file.read_text() == "WARNING aar.x: [left out: redaction failed, RuntimeError]\n"


def test_a_line_end_in_a_record_cannot_forge_another_record(folder: Path) -> None:
    file = setup_logging(Settings(), folder, redact)
    logging.getLogger("aar.x").info("a\n2026-01-01 00:00:00 ERROR forged\r\u2028b")
    lines = file.read_text().split("\n")
    assert lines[1:] == ["    2026-01-01 00:00:00 ERROR forged", "    ", "    b", ""]


@pytest.mark.parametrize(
    ("level", "debug", "written"),
    [
        ("debug", False, ["d", "i", "w", "e"]),
        ("info", False, ["i", "w", "e"]),
        ("warning", False, ["w", "e"]),
        ("error", False, ["e"]),
        ("error", True, ["d", "i", "w", "e"]),
    ],
)
def test_the_level_of_the_config_holds_and_debug_overrides_it(
    folder: Path, level: str, debug: bool, written: list[str]
) -> None:
    setup_logging(Settings(level=level), folder, redact, debug=debug)
    log = logging.getLogger("aar.x")
    log.debug("d")
    log.info("i")
    log.warning("w")
    log.error("e")
    assert [line[-1] for line in tail(folder, 9)] == written


def test_chatter_of_libraries_is_silent_below_warning_and_warnings_are_kept(folder: Path) -> None:
    setup_logging(Settings(level="debug"), folder, redact, debug=True)
    for name in ("asyncio", "httpx2", "httpcore2.http11"):
        logging.getLogger(name).info("chatter")
        logging.getLogger(name).warning("trouble")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("an old function", DeprecationWarning, stacklevel=1)
    text = "\n".join(tail(folder, 99))
    assert "chatter" not in text
    assert text.count("trouble") == 3
    assert "an old function" in text


def test_traffic_is_written_only_when_it_is_named(folder: Path) -> None:
    setup_logging(Settings(level="error", trace=("mcp",)), folder, redact)
    assert (trace_enabled("llm"), trace_enabled("mcp")) == (False, True)
    trace("llm", "request", "no")
    trace("mcp", "response tools/list", "yes")
    trace("mcp", "long", "x" * 300_000)
    first, second = tail(folder, 9)
    assert first.endswith("aar.trace.mcp: response tools/list yes")
    assert second.endswith("x [100,000 characters left out]")
    close_logging()
    assert not trace_enabled("mcp")


def test_the_log_rotates_within_its_bounds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics_log, "MAX_BYTES", 2000)
    setup_logging(Settings(), folder, redact)
    for number in range(400):
        logging.getLogger("aar.x").info("record %d", number)
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["aar.log", *(f"aar.log.{n}" for n in range(1, 5))]
    assert all(file.stat().st_size <= 2000 for file in files)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    last = tail(folder, 60)
    assert [line.rsplit(" ", 1)[1] for line in last] == [str(n) for n in range(340, 400)]


def test_a_record_goes_to_the_new_file_after_another_process_rotated(folder: Path) -> None:
    file = setup_logging(Settings(), folder, redact)
    logging.getLogger("aar.x").info("one")
    file.rename(folder / "aar.log.1")
    logging.getLogger("aar.x").info("two")
    assert [line[-3:] for line in tail(folder, 9)] == ["one", "two"]
    assert file.read_text().endswith("two\n")


def test_the_tail_of_nothing_is_empty(folder: Path) -> None:
    assert tail(folder, 5) == []
    setup_logging(Settings(), folder, redact)
    logging.getLogger("aar.x").info("one")
    assert tail(folder, 0) == []
    assert len(tail(folder, 1)) == 1


def test_a_log_that_cannot_be_written_disturbs_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").write_text("in the way")
    setup_logging(Settings(), tmp_path / "logs", redact)
    logging.getLogger("aar.x").error("lost")
    assert capfd.readouterr() == ("", "")


def test_nothing_reaches_the_terminal_of_a_real_process(tmp_path: Path) -> None:
    program = (
        "import logging, warnings, sys, pathlib\n"
        "from aar.observability.diagnostics_log import setup_logging\n"
        "class S: level='debug'; trace=()\n"
        "setup_logging(S(), pathlib.Path(sys.argv[1]), str)\n"
        "logging.getLogger('some.library').error('boom %d', 1)\n"
        "logging.getLogger('aar').error('bad format %d', 'x')\n"
        "warnings.warn('old')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = (tmp_path / "aar.log").read_text()
    assert "boom 1" in text
    assert "UserWarning: old" in text
