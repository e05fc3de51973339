"""Who calls aar at the times of a schedule: systemd's timers, cron, or launchd; aar has no daemon."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol
from xml.parsers.expat import ExpatError

from aar.config.files import write_atomic
from aar.orchestration.batch_child import own_command
from aar.orchestration.schedule import Keeper, Schedule
from aar.orchestration.schedule_cron import crontab_times, local_minutes, on_calendar
from aar.protocol.errors import StorageError, UsageError
from aar.protocol.ports import Spawner, SpawnRequest

_TIMEOUT_S: Final = 20.0
_CARRIED: Final = ("PATH", "AAR_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE")
"""What a program that the system starts lacks. Keys are not among them: they would lie in a file."""


EntryState = Literal["current", "old", "missing"]
"""How an entry stands: as aar writes it now, with another call of aar in it, or not there."""


class Clock(Protocol):
    """Puts entries where the system finds them."""

    async def add(self, schedule: Schedule) -> str:
        """Write the entry and let it count; return where it is, for the user."""
        ...

    async def remove(self, schedule: Schedule) -> None:
        """Take the entry away; none is no error."""
        ...

    async def state(self, schedule: Schedule) -> EntryState:
        """Return whether the entry calls aar as it would be called by one that is written now."""
        ...


def command_of(schedule: Schedule) -> tuple[str, ...]:
    """Return the words that the system calls."""
    return (*own_command(), "schedule", "run", schedule.name, "--due")


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that go with an entry."""
    return {name: environ[name] for name in _CARRIED if environ.get(name)}


class _Caller:
    def __init__(self, spawner: Spawner, environ: Mapping[str, str]) -> None:
        self._spawner, self._environ = spawner, environ

    async def call(self, *words: str, stdin: str | None = None) -> tuple[int, str]:
        """Return exit code and output of a program of the system; 127: it is not there."""
        try:
            ended = await self._spawner.run(
                SpawnRequest(
                    words,
                    Path("/"),
                    env=dict(self._environ),
                    kind="helper",
                    timeout_s=_TIMEOUT_S,
                    stdin=None if stdin is None else stdin.encode(),
                    merge_stderr=stdin is None and "-l" not in words,
                )
            )
        except FileNotFoundError:
            return 127, ""
        text = ended.output + ended.stderr
        return 1 if ended.exit_code is None else ended.exit_code, text.decode("utf-8", "replace")

    async def must(self, *words: str, stdin: str | None = None) -> None:
        code, told = await self.call(*words, stdin=stdin)
        if code != 0:
            raise StorageError(f"`{' '.join(words[:3])}` failed: {' '.join(told.split())[:300] or code}")


class Systemd(_Caller):
    """A timer of the user's systemd."""

    def _files(self, schedule: Schedule) -> tuple[Path, Path]:
        base = (
            self._environ.get("XDG_CONFIG_HOME")
            or Path(self._environ.get("HOME", "~")).expanduser() / ".config"
        )
        folder, name = Path(base) / "systemd/user", f"aar-schedule-{schedule.name}"
        return folder / f"{name}.service", folder / f"{name}.timer"

    async def add(self, schedule: Schedule) -> str:
        """Write service and timer, and start the timer."""
        service, timer = self._files(schedule)
        _write(service, service_text(schedule, carried(self._environ)))
        _write(timer, timer_text(schedule))
        try:
            await self.must("systemctl", "--user", "daemon-reload")
            await self.must("systemctl", "--user", "enable", "--now", timer.name)
        except StorageError:
            await self.remove(schedule)
            raise
        return f"{timer} (`loginctl enable-linger` lets it run while you are logged out)"

    async def remove(self, schedule: Schedule) -> None:
        """Stop the timer and remove the files."""
        files = self._files(schedule)
        if not any(file.exists() for file in files):
            return
        await self.call("systemctl", "--user", "disable", "--now", files[1].name)
        for file in files:
            file.unlink(missing_ok=True)
        await self.call("systemctl", "--user", "daemon-reload")

    async def state(self, schedule: Schedule) -> EntryState:
        """Look at the service; without its timer nothing calls it."""
        service, timer = (_text(file) for file in self._files(schedule))
        if service is None or timer is None:
            return "missing"
        return "current" if _exec_start(schedule) in service.splitlines() else "old"


def service_text(schedule: Schedule, env: Mapping[str, str]) -> str:
    """Return the unit that is started (systemd.service(5))."""
    lines = [
        "# Written by aar schedule; `aar schedule remove` takes it away.",
        "[Unit]",
        f"Description=aar schedule {schedule.name}",
        "",
        "[Service]",
        "Type=oneshot",
        *(f"Environment={_unit_word(f'{name}={value}')}" for name, value in env.items()),
        _exec_start(schedule),
    ]
    return "\n".join(lines) + "\n"


def _exec_start(schedule: Schedule) -> str:
    # A dollar is a variable here only, not in Environment=.
    return "ExecStart=" + " ".join(_unit_word(word).replace("$", "$$") for word in command_of(schedule))


def timer_text(schedule: Schedule) -> str:
    """Return the timer (systemd.timer(5)); what was missed is made good once."""
    lines = [
        "# Written by aar schedule; `aar schedule remove` takes it away.",
        "[Unit]",
        f"Description=aar schedule {schedule.name}",
        "",
        "[Timer]",
        *(f"OnCalendar={value}" for value in on_calendar(schedule.times)),
        "AccuracySec=1s",
        "Persistent=true",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return "\n".join(lines) + "\n"


def _unit_word(word: str) -> str:
    """Quote a word for a unit file (systemd.syntax(7), systemd.unit(5) on specifiers)."""
    if "\n" in word or "\r" in word:
        raise UsageError("A line end stands in a path or variable; systemd cannot take that.")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


class Crontab(_Caller):
    """A line in the user's crontab."""

    async def _lines(self) -> list[str]:
        code, text = await self.call("crontab", "-l")
        if code == 0:
            return text.splitlines()
        if "no crontab" in text.lower() or "no such file" in text.lower():
            return []
        # Whoever cannot read the others' lines must not write over them.
        raise StorageError(f"`crontab -l` failed: {' '.join(text.split())[:300] or code}")

    async def add(self, schedule: Schedule) -> str:
        """Replace the line of this schedule, and keep all others."""
        line = crontab_line(schedule, carried(self._environ))
        others = [other for other in await self._lines() if not _is_own(other, schedule)]
        await self.must("crontab", "-", stdin="\n".join([*others, line]) + "\n")
        return "your crontab (`crontab -l`)"

    async def remove(self, schedule: Schedule) -> None:
        """Take the line away."""
        lines = await self._lines()
        others = [other for other in lines if not _is_own(other, schedule)]
        if others != lines:
            await self.must("crontab", "-", stdin="".join(f"{line}\n" for line in others))

    async def state(self, schedule: Schedule) -> EntryState:
        """Look at the line."""
        own = next((line.rstrip() for line in await self._lines() if _is_own(line, schedule)), None)
        if own is None:
            return "missing"
        command = _shell_words(command_of(schedule))
        return "current" if own.endswith(f" {command} {_mark(schedule)}") else "old"


def _mark(schedule: Schedule) -> str:
    return f"# aar schedule {schedule.name}"


def _is_own(line: str, schedule: Schedule) -> bool:
    return line.rstrip().endswith(_mark(schedule))


def crontab_line(schedule: Schedule, env: Mapping[str, str]) -> str:
    """Return the line (crontab(5)); the mark at its end is a comment of the shell."""
    command = _shell_words(
        ["env", *(f"{name}={value}" for name, value in env.items()), *command_of(schedule)]
    )
    if "\n" in command:
        raise UsageError("A line end stands in a path or variable; cron cannot take that.")
    return f"{crontab_times(schedule.times)} {command} {_mark(schedule)}"


def _shell_words(words: Iterable[str]) -> str:
    # A bare % is a line end to cron.
    return shlex.join(words).replace("%", "\\%")


class Launchd(_Caller):
    """An agent of macOS's launchd."""

    def _file(self, schedule: Schedule) -> Path:
        home = Path(self._environ.get("HOME", "~")).expanduser()
        return home / "Library/LaunchAgents" / f"{_label(schedule)}.plist"

    async def add(self, schedule: Schedule) -> str:
        """Write the property list and load it."""
        file = self._file(schedule)
        await self.remove(schedule)
        _write(file, launchd_plist(schedule, carried(self._environ)).decode())
        try:
            await self.must("launchctl", "bootstrap", f"gui/{os.getuid()}", str(file))
        except StorageError:
            file.unlink(missing_ok=True)
            raise
        return str(file)

    async def remove(self, schedule: Schedule) -> None:
        """Unload it and remove the file."""
        file = self._file(schedule)
        if file.exists():
            await self.call("launchctl", "bootout", f"gui/{os.getuid()}/{_label(schedule)}")
            file.unlink(missing_ok=True)

    async def state(self, schedule: Schedule) -> EntryState:
        """Look at the property list."""
        text = _text(self._file(schedule))
        if text is None:
            return "missing"
        try:
            words = plistlib.loads(text.encode()).get("ProgramArguments")
        except (plistlib.InvalidFileException, ExpatError, AttributeError):
            return "old"
        return "current" if words == list(command_of(schedule)) else "old"


def _label(schedule: Schedule) -> str:
    return f"aar.schedule.{schedule.name}"


def launchd_plist(schedule: Schedule, env: Mapping[str, str]) -> bytes:
    """Return the property list (launchd.plist(5)), whose times are those of the machine's clock."""
    times = [{"Minute": minute} for minute in local_minutes(schedule.times)]
    return plistlib.dumps(
        {
            "Label": _label(schedule),
            "ProgramArguments": list(command_of(schedule)),
            "EnvironmentVariables": dict(env),
            "StartCalendarInterval": times,
            "ProcessType": "Background",
        }
    )


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text.encode(), 0o600)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror}.") from error


_CLOCKS: Final[Mapping[str, type[Systemd] | type[Crontab] | type[Launchd]]] = {
    "systemd": Systemd,
    "crontab": Crontab,
    "launchd": Launchd,
}


def clock(keeper: Keeper, spawner: Spawner, environ: Mapping[str, str]) -> Clock | None:
    """Return who puts entries there; ``None`` for ``none``."""
    made = _CLOCKS.get(keeper)
    return None if made is None else made(spawner, environ)


async def not_current(
    schedules: Sequence[Schedule], spawner: Spawner, environ: Mapping[str, str]
) -> list[tuple[Schedule, str]]:
    """Return the schedules whose entries should be written anew, with what is wrong, for the user."""
    found: list[tuple[Schedule, str]] = []
    for schedule in schedules:
        entry = clock(schedule.keeper, spawner, environ)
        if entry is None:
            continue
        try:
            state = await entry.state(schedule)
        except StorageError as error:
            found.append((schedule, str(error)))
            continue
        if state == "missing":
            found.append((schedule, f"{schedule.keeper} has no entry of it, so that nothing calls it"))
        elif state == "old":
            found.append((schedule, f"its entry in {schedule.keeper} is not as this aar writes it"))
    return found


async def find_keeper(spawner: Spawner, environ: Mapping[str, str], platform: str = sys.platform) -> Keeper:
    """Return who can call aar on this machine.

    Raises:
        UsageError: Nobody can.
    """
    if platform == "darwin":
        return "launchd"
    path = environ.get("PATH")
    if shutil.which("systemctl", path=path):
        code, _ = await Systemd(spawner, environ).call("systemctl", "--user", "show-environment")
        if code == 0:
            return "systemd"
    if shutil.which("crontab", path=path):
        return "crontab"
    raise UsageError(
        "Neither systemd for users nor cron is here. `--with none` keeps the schedule; let something of "
        "yours call `aar schedule run NAME --due` every few minutes."
    )
