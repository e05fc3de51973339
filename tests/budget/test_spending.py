"""What a day cost, over processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from aar.memory.spending import SpendingLedger
from tests.support.work import calls_made

DAY = date(2026, 11, 22)


def ledger(folder: Path, day: date = DAY) -> SpendingLedger:
    return SpendingLedger(folder / "spending", lambda: day)


def test_amounts_add_up_and_another_ledger_sees_them(tmp_path: Path) -> None:
    one, other = ledger(tmp_path), ledger(tmp_path)
    assert one.today() == 0
    one.add(0.25)
    other.add(0.5)
    one.add(0)
    one.add(-3)
    assert one.today() == other.today() == pytest.approx(0.75)
    assert one.of(DAY) == pytest.approx(0.75)


def test_a_new_day_begins_at_nothing(tmp_path: Path) -> None:
    day = DAY
    book = SpendingLedger(tmp_path, lambda: day)
    book.add(1)
    day = date(2026, 11, 23)
    assert book.today() == 0
    book.add(2)
    assert (book.today(), book.of(DAY)) == (2, 1)


def test_the_file_is_for_the_owner_alone(tmp_path: Path) -> None:
    ledger(tmp_path).add(1)
    file = next((tmp_path / "spending").iterdir())
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_torn_and_foreign_lines_cost_nothing_and_break_nothing(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.add(1)
    file = tmp_path / "spending" / f"{DAY}.jsonl"
    with file.open("ab") as out:
        out.write(b'nonsense\n{"usd": "x"}\n[]\n{"usd": -5}\n{"usd": 2')
    assert book.today() == 1
    book.add(4)
    assert book.today() == ledger(tmp_path).today() == 5
    file.write_bytes(b"")
    assert book.today() == 0


def test_where_nothing_can_be_written_it_counts_in_memory(tmp_path: Path) -> None:
    (tmp_path / "spending").write_text("a file is in the way")
    book = ledger(tmp_path)
    book.add(1.5)
    assert book.today() == 1.5


def test_processes_at_once_lose_no_amount(tmp_path: Path) -> None:
    program = (
        "import sys; from datetime import date; from pathlib import Path\n"
        "from aar.memory.spending import SpendingLedger\n"
        "book = SpendingLedger(Path(sys.argv[1]), lambda: date(2026, 11, 22))\n"
        "for _ in range(200): book.add(0.01)\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env={**os.environ}) for _ in range(3)
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    lines = (tmp_path / f"{DAY}.jsonl").read_text().splitlines()
    assert len(lines) == 600
    assert all(json.loads(line)["usd"] == 0.01 for line in lines)
    assert SpendingLedger(tmp_path, lambda: DAY).today() == pytest.approx(6)


def test_the_total_of_a_busy_day_costs_what_is_new(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    for _ in range(3000):
        book.add(0.001)
    book.today()

    def go_on() -> None:
        for _ in range(50):
            book.add(0.001)
            book.today()

    assert calls_made(go_on) / 50 < 500
    assert book.today() == pytest.approx(3.05)
