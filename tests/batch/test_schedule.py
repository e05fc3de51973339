"""Schedules: their times, the entries that systems get, what is run once, and what is told of it."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from aar.config.paths import paths
from aar.orchestration.batch_results import TaskResult
from aar.orchestration.batch_tasks import BatchTask
from aar.orchestration.schedule import Schedule, Schedules
from aar.orchestration.schedule_cron import crontab_times, local_minutes, local_zone, on_calendar, parse_cron
from aar.orchestration.schedule_keepers import (
    clock,
    crontab_line,
    find_keeper,
    launchd_plist,
    not_current,
    service_text,
    timer_text,
)
from aar.protocol.errors import StorageError, UsageError
from aar.runtime import open_runtime
from aar.transports.cli.doctor import examine
from aar.transports.cli.schedule import schedule
from tests.batch.support import spawner
from tests.cli.support import aar, script

CREATED = datetime(2026, 3, 1, tzinfo=UTC)


def made(cron: str = "30 6 * * 1-5", zone: str = "Europe/Berlin", **more: object) -> Schedule:
    fields = {"name": "s", "folder": Path("/"), "created": CREATED, "task": BatchTask(prompt="Do it")}
    return Schedule.model_validate({**fields, "cron": cron, "zone": zone, **more})


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("cron", "zone", "sentence"),
    [
        ("* * *", "UTC", "has 3 fields; a cron expression has five"),
        ("0 0 * * * *", "UTC", "has 6 fields"),
        ("61 * * * *", "UTC", "the minute is wrong"),
        ("0 0 * * funday", "UTC", "the day of the week is wrong"),
        ("0 0 31 2 *", "UTC", "the day of the month is wrong"),
        ("@daily", "Europe/Berln", "did you mean Europe/Berlin?"),
        ("@daily", "../etc/passwd", "There is no time zone"),
    ],
)
def test_a_wrong_time_is_refused_in_a_sentence(cron: str, zone: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        parse_cron(cron, zone)


def test_a_time_comes_once_and_what_was_missed_comes_to_one() -> None:
    schedule = made("0 3 * * *")
    first = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
    assert schedule.due(first - timedelta(seconds=1)) is None
    slot = schedule.due(first)
    assert slot == first
    after = schedule.model_copy(update={"slot": slot})
    assert after.due(first + timedelta(hours=23)) is None
    assert after.due(first + timedelta(days=9, minutes=5)) == first + timedelta(days=9)
    # What was before it was made does not count.
    assert made("0 3 * * *", created=first + timedelta(minutes=1)).due(first + timedelta(hours=1)) is None


def test_the_clock_that_goes_forward_or_back_leaves_out_nothing_and_repeats_nothing() -> None:
    cron = parse_cron("30 2 * * *", "Europe/Berlin")
    spring = cron.next(datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert spring is not None
    assert spring.date().isoformat() == "2026-03-29"
    autumn = cron.next(datetime(2026, 10, 24, 12, tzinfo=UTC))
    assert autumn is not None
    following = cron.next(autumn)
    assert following is not None
    assert following.date() - autumn.date() == timedelta(days=1)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize(
    "cron",
    ["30 6 * * 1-5", "*/20 8-10 * jan,jul *", "0 0 13 * fri", "0 12 */9 * *", "5 4 * * sun", "59 23 31 12 7"],
)
def test_systemd_reads_the_same_times(cron: str) -> None:
    times = parse_cron(cron, "Asia/Kolkata")
    expected: list[datetime] = []
    now = datetime.now(UTC)
    for _ in range(4):
        following = times.next(expected[-1] if expected else now)
        assert following is not None
        expected.append(following)
    found: set[datetime] = set()
    # One call for each: the times of several values are all that count.
    for value in on_calendar(times):
        words = ["systemd-analyze", "calendar", "--iterations=4", value]
        told = subprocess.run(
            words, capture_output=True, text=True, check=True, env={**os.environ, "TZ": "UTC"}
        )
        stamps = re.findall(r"(?:Next elapse|Iter\. #\d+|\(in UTC\)): \w+ (\S+ \S+) UTC", told.stdout)
        found |= {datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) for stamp in stamps}
    assert sorted(found)[:4] == expected


def test_times_that_systemd_cannot_say_are_looked_for_each_day() -> None:
    assert on_calendar(parse_cron("0 9 L * *", "UTC")) == ["*-*-* 09:00:00 UTC"]
    assert on_calendar(parse_cron("0 9 * * mon#2", "UTC")) == ["*-*-* 09:00:00 UTC"]


@pytest.mark.usefixtures("berlin")
def test_cron_gets_the_time_itself_or_the_minutes_in_which_that_of_another_zone_can_come() -> None:
    assert local_zone() == "Europe/Berlin"
    assert crontab_times(parse_cron("15 6 * * 1-5", "Europe/Berlin")) == "15 6 * * 1-5"
    assert crontab_times(parse_cron("15 6 * * 1-5", "UTC")) == "15 * * * *"
    assert local_minutes(parse_cron("15 6 * * *", "Asia/Kolkata")) == [45]
    assert crontab_times(parse_cron("15 6 L * *", "Europe/Berlin")) == "15 * * * *"
    line = crontab_line(made(), {"PATH": "/a b/50%"})
    assert line.startswith("30 6 * * 1-5 env 'PATH=/a b/50\\%' ")
    assert line.endswith(" schedule run s --due # aar schedule s")
    times = plistlib.loads(launchd_plist(made("15,45 6 * * *", "UTC"), {}))["StartCalendarInterval"]
    assert times == [{"Minute": 15}, {"Minute": 45}]


def test_words_of_a_unit_are_quoted() -> None:
    text = service_text(made(), {"PATH": '/a b/"%\\$HOME'})
    assert 'Environment="PATH=/a b/\\"%%\\\\$HOME"\n' in text
    assert '"schedule" "run" "s" "--due"\n' in text
    assert "Persistent=true" in timer_text(made())
    with pytest.raises(UsageError, match="line end"):
        service_text(made(), {"PATH": "/a\nExecStart=evil"})


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


async def test_a_crontab_keeps_all_other_lines(tmp_path: Path) -> None:
    table = tmp_path / "table"
    store = f'if [ "$1" = -l ]; then cat {table} 2>/dev/null || {{ echo no crontab for you >&2; exit 1; }}; else cat >{table}; fi'
    program(tmp_path / "bin", "crontab", store)
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    with spawner(tmp_path) as started:
        assert await find_keeper(started, {"PATH": str(tmp_path / "bin")}, "linux") == "crontab"
        entry = clock("crontab", started, env)
        assert entry is not None
        await entry.add(made())
        own = table.read_text()
        table.write_text("# mine\n0 1 * * * backup\n" + own)
        await entry.add(made("0 5 * * *"))
        assert table.read_text().count("aar schedule s") == 1
        assert await not_current([made(keeper="crontab")], started, env) == []
        table.write_text(table.read_text().replace(" -P ", " "))
        ((_, problem),) = await not_current([made(keeper="crontab")], started, env)
        assert problem == "its entry in crontab is not as this aar writes it"
        await entry.add(made())
        assert await entry.state(made()) == "current"
        await entry.remove(made())
        assert await entry.state(made()) == "missing"
        assert table.read_text() == "# mine\n0 1 * * * backup\n"
        program(tmp_path / "bin", "crontab", "echo not allowed >&2; exit 1")
        with pytest.raises(StorageError, match="not allowed"):
            await entry.add(made())
    assert table.read_text() == "# mine\n0 1 * * * backup\n"


async def test_systemd_is_told_of_units_and_leaves_none_when_it_refuses(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program(tmp_path / "bin", "systemctl", f'echo "$@" >>{log}; [ ! -e {tmp_path}/refuse ]')
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    units = tmp_path / "config/systemd/user"
    with spawner(tmp_path) as started:
        assert await find_keeper(started, env, "linux") == "systemd"
        entry = clock("systemd", started, env)
        assert entry is not None
        await entry.add(made())
        assert {file.name for file in units.iterdir()} == {"aar-schedule-s.service", "aar-schedule-s.timer"}
        assert "--user enable --now aar-schedule-s.timer" in log.read_text()
        assert await entry.state(made()) == "current"
        service = units / "aar-schedule-s.service"
        service.write_text(service.read_text().replace('"-P" ', ""))
        assert await entry.state(made()) == "old"
        (units / "aar-schedule-s.timer").unlink()
        assert await entry.state(made()) == "missing"
        await entry.remove(made())
        assert list(units.iterdir()) == []
        (tmp_path / "refuse").touch()
        with pytest.raises(StorageError, match="systemctl --user daemon-reload"):
            await entry.add(made())
    assert list(units.iterdir()) == []


def test_lists_and_the_doctor_tell_of_an_entry_that_renew_writes_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    program(tmp_path / "bin", "launchctl", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    Schedules(paths().data).save(made(keeper="launchd", folder=tmp_path))
    told = CliRunner().invoke(schedule, ["list"])
    assert "launchd has no entry of it, so that nothing calls it; `aar schedule renew s`" in told.stderr
    assert CliRunner().invoke(schedule, ["renew"]).exit_code == 0
    assert CliRunner().invoke(schedule, ["list"]).stderr == ""
    plist = tmp_path / "Library/LaunchAgents/aar.schedule.s.plist"
    plist.write_text(plist.read_text().replace("<string>-P</string>", ""))
    (check,) = [check for check in examine({}) if check.name == "schedules"]
    assert (check.status, check.fix) == ("warn", "aar schedule renew s")
    assert "its entry in launchd is not as this aar writes it" in check.detail


async def test_a_machine_without_either_says_what_to_do(tmp_path: Path) -> None:
    with spawner(tmp_path) as started:
        with pytest.raises(UsageError, match="--with none"):
            await find_keeper(started, {"PATH": str(tmp_path)}, "linux")
        assert await find_keeper(started, {}, "darwin") == "launchd"


def test_reports_are_told_once_and_the_oldest_go(tmp_path: Path) -> None:
    schedules = Schedules(tmp_path)
    assert schedules.unseen() == []
    result = TaskResult(id="s", status="done", exit_code=0, text="Fine.", session_id="S1", cost_usd=0.5)
    for minute in range(55):
        file = schedules.report(made(), result, CREATED + timedelta(minutes=minute))
    assert len(schedules.reports("s")) == 50
    assert schedules.reports("s")[-1] == file
    assert "Fine." in file.read_text()
    assert len(schedules.unseen()) == 50
    assert schedules.unseen() == []
    schedules.report(made(), result, CREATED + timedelta(hours=2))
    (sentence,) = schedules.unseen()
    assert sentence == "Schedule s, 2026-03-01 03:00 CET: done. `aar schedule show s` has the report."


def test_a_schedule_is_run_when_due_once_reported_and_told_to_hooks(project: Path, tmp_path: Path) -> None:
    home = Path(os.environ["AAR_HOME"])
    (home / "config").mkdir(parents=True)
    heard = tmp_path / "heard"
    (home / "config/config.toml").write_text(
        f"[[hooks.notification]]\ncommand = 'cat >{heard}'\nsandbox = false\n"
    )
    model = script(tmp_path / "m.json", "All is well.", after="last")
    words = ("schedule", "add", "often", "* * * * *", "Look around", "--with", "none", "--mode", "plan")
    added = aar(*words, "--model", model, "--zone", "UTC", cwd=project)
    assert added.code == 0, added.err
    assert aar(*words, cwd=project).code == 3
    file = home / "schedules/often.json"
    assert aar("schedule", "run", "often", "--due", cwd=tmp_path).out == ""
    fields = json.loads(file.read_text())
    file.write_text(json.dumps({**fields, "created": "2026-01-01T00:00:00Z"}))
    ran = aar("schedule", "run", "often", "--due", cwd=tmp_path)
    assert (ran.code, "All is well." in ran.out) == (0, True), ran.err
    assert json.loads(heard.read_text())["message"] == "Schedule often: done."
    slot = json.loads(file.read_text())["slot"]
    assert slot is not None
    assert "All is well." in aar("schedule", "show", "often", cwd=tmp_path).out
    runtime = open_runtime(cwd=project, model=model, interactive=True)
    runtime.spawner.close()
    assert [text for text in runtime.notices if text.startswith("Schedule often")] != []
    assert aar("schedule", "remove", "often", cwd=project).code == 0
    assert not file.exists()
