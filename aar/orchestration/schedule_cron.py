"""Times of schedules: cron expressions in an IANA time zone, and the same for systemd, cron and launchd."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

from aar.protocol.errors import UsageError

_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS: Final = ("minute", "hour", "day of the month", "month", "day of the week")
_DAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_LOOK_AHEAD: Final = timedelta(days=7)
_LOOKS: Final = 110
"""Weeks whose offsets are compared: two years of summer and winter time."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone.

    Attributes:
        text: Five fields, as Debian's cron reads them; also ``L``, ``LW`` and ``MON#2``.
        zone: Its time zone.
    """

    text: str
    zone: ZoneInfo

    def next(self, after: datetime) -> datetime | None:
        """Return the first time after ``after``, in the zone; ``None``: there is none."""
        return self._step(after, reverse=False)

    def last(self, until: datetime) -> datetime | None:
        """Return the newest time that is not after ``until``, in the zone."""
        return self._step(until.replace(second=59, microsecond=0) + timedelta(seconds=1), reverse=True)

    def _step(self, start: datetime, *, reverse: bool) -> datetime | None:
        from cronsim import CronSim

        found = next(CronSim(self.text, start.astimezone(self.zone), reverse=reverse), None)
        return None if found is None else found.astimezone(self.zone)


def parse_cron(text: str, zone: str) -> Cron:
    """Return what an expression and the name of a time zone mean.

    Raises:
        UsageError: One of them is wrong, or the time never comes.
    """
    from cronsim import CronSim, CronSimError

    plain = _NAMED.get(text.strip().lower(), " ".join(text.split()))
    count = len(plain.split())
    if count != len(_FIELDS):
        raise UsageError(
            f"'{text}' has {count} fields; a cron expression has five ({', '.join(_FIELDS)}), such as "
            "'30 6 * * 1-5', or is @hourly, @daily, @weekly or @monthly."
        )
    cron = Cron(plain, _zone(zone))
    try:
        CronSim(plain, datetime.now(cron.zone))
    except CronSimError as error:
        raise UsageError(f"'{text}' is no cron expression: {_wrong(str(error))}.") from error
    if cron.next(datetime.now(UTC)) is None:
        raise UsageError(f"'{text}' is a time that never comes.")
    return cron


def _wrong(told: str) -> str:
    name = told.removeprefix("Bad ").replace("day-of-month", _FIELDS[2]).replace("day-of-week", _FIELDS[4])
    return f"the {name} is wrong"


@cache
def _zones() -> frozenset[str]:
    """Return the names of all time zones; the first call reads a file for each."""
    return frozenset(available_timezones())


def _zone(name: str) -> ZoneInfo:
    known = _zones()
    if name in known:
        return ZoneInfo(name)
    near = difflib.get_close_matches(name, known, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else "take one such as Europe/Berlin or UTC."
    raise UsageError(f"There is no time zone '{name}'; {hint}")


def local_zone() -> str:
    """Return the name of this machine's time zone; ``UTC`` when it tells none."""
    import os
    from pathlib import Path

    known = _zones()
    given = os.environ.get("TZ", "").removeprefix(":")
    if given in known:
        return given
    for path in (Path("/etc/localtime"), Path("/var/db/timezone/localtime")):
        parts = path.resolve().parts if path.is_symlink() else ()
        for start in range(len(parts)):
            if (name := "/".join(parts[start:])) in known:
                return name
    return "UTC"


def _sets(cron: Cron) -> Any:
    from cronsim import CronSim

    return CronSim(cron.text, datetime.now(UTC))


def on_calendar(cron: Cron) -> list[str]:
    """Return ``OnCalendar=`` values (systemd.time(7)) that name each time of the expression.

    They may name more (for ``L`` and ``#``): whoever is called looks whether it is time.
    """
    sets = _sets(cron)
    minutes, hours = _listed(sets.minutes, range(60)), _listed(sets.hours, range(24))
    months = _listed(sets.months, range(1, 13))
    special = any(not isinstance(day, int) for day in sets.weekdays) or min(sets.days) < 0
    every_day = special or set(range(1, 32)) <= sets.days
    week: set[int] = set() if special else {day % 7 for day in sets.weekdays}
    days = "*" if every_day else _listed(sets.days, range(1, 32))
    names = "" if not week or len(week) == 7 else ",".join(_DAYS[day] for day in sorted(week)) + " "
    end = f"{hours}:{minutes}:00 {cron.zone.key}"
    if sets.day_and or special:
        return [f"{names}*-{months}-{days} {end}"]
    # Both days are named: one of them is enough.
    return [f"*-{months}-{days} {end}", f"{names}*-{months}-* {end}"]


def _listed(values: Iterable[int], all_of: range) -> str:
    found = sorted(set(values))
    return "*" if found == list(all_of) else ",".join(f"{value:02d}" for value in found)


def local_minutes(cron: Cron, now: datetime | None = None) -> list[int]:
    """Return the minutes of an hour, by the machine's clock, in which a time of the expression can come."""
    offsets = {zone - local for zone, local in _offsets(cron, now)}
    minutes: set[int] = _sets(cron).minutes
    return sorted(
        {(minute - int(delta.total_seconds() // 60)) % 60 for minute in minutes for delta in offsets}
    )


def is_local(cron: Cron, now: datetime | None = None) -> bool:
    """Tell whether the machine's clock shows the time of the zone, all the year."""
    return all(zone == local for zone, local in _offsets(cron, now))


def _offsets(cron: Cron, now: datetime | None) -> list[tuple[timedelta, timedelta]]:
    start = now or datetime.now(UTC)
    found: list[tuple[timedelta, timedelta]] = []
    for week in range(_LOOKS):
        then = start + week * _LOOK_AHEAD
        zone, local = then.astimezone(cron.zone).utcoffset(), then.astimezone().utcoffset()
        found.append((zone or timedelta(), local or timedelta()))
    return found


def crontab_times(cron: Cron, now: datetime | None = None) -> str:
    """Return the five fields for a crontab, whose times are those of the machine's clock.

    Those of another zone are looked for in each hour: whoever is called looks whether it is time.
    """
    sets = _sets(cron)
    special = any(not isinstance(day, int) for day in sets.weekdays) or min(sets.days) < 0
    if is_local(cron, now) and not special:
        return cron.text
    minutes = local_minutes(cron, now)
    return f"{'*' if len(minutes) == 60 else ','.join(map(str, minutes))} * * * *"
