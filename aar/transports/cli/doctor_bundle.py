"""``aar doctor --bundle``: an archive for bug reports, from which secrets are taken out.

What is in it: the checks, settings (headers, commands, environments and the like only by name), names of
aar's variables, versions of packages, names and sizes of sessions, the end of the diagnostics log. Not in it:
what was said in sessions, files of the project, keys.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from aar.config.paths import paths
from aar.protocol.errors import AarError, NotThereError
from aar.safety.environment import is_secret_name, secret_values
from aar.safety.redact import MARK, Redactor
from aar.transports.cli.doctor_checks import load

_LOG_LINES = 3000
_SESSIONS = 200
_CARRIES = frozenset({"headers", "env", "args", "extra", "hooks", "command", "commands", "examples"})
"""Keys whose values may hold anything; of these only names or numbers are told."""
_SHOWN = ("TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "SHELL", "CI", "NO_COLOR", "COLUMNS", "PATH")
_README = """\
Written by `aar doctor --bundle`. Keys, passwords and tokens are taken out, and your home folder is written ~.
Look through it before you send it: names of folders, hosts and models are still in it.
"""


def write_bundle(file: Path | None, options: dict[str, Any], report: dict[str, Any]) -> Path:
    """Write the archive and return its path.

    Args:
        file: Where; ``None``: a new file in the present folder.
        options: For `aar.runtime.open_base`.
        report: What the checks found.

    Raises:
        UsageError: It exists already or cannot be written.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = Path(f"aar-doctor-{stamp}.tar.gz") if file is None else file.expanduser()
    clean = _cleaner(options)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in _contents(options, report):
            data = clean(text).encode("utf-8", "replace")
            info = tarfile.TarInfo(f"aar-doctor-{stamp}/{name}")
            info.size, info.mtime, info.mode = len(data), int(time.time()), 0o600
            archive.addfile(info, io.BytesIO(data))
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(packed.getvalue())
    except FileExistsError as error:
        raise NotThereError(f"--bundle {target} exists already; name a new file.") from error
    except OSError as error:
        raise NotThereError(f"--bundle {target} cannot be written: {error.strerror}.") from error
    return target


def _contents(options: dict[str, Any], report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "README.txt", _README
    yield "doctor.json", json.dumps(report, indent=2, ensure_ascii=False)
    yield "environment.txt", "\n".join(_environment()) + "\n"
    yield "packages.txt", "\n".join(_packages()) + "\n"
    yield "config.json", json.dumps(_settings(options), indent=2, ensure_ascii=False)
    yield "sessions.txt", "\n".join(_sessions()) + "\n"
    yield "log.txt", "\n".join(_log()) + "\n"


class _Cleaner:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._home = str(Path.home())

    def __call__(self, text: str) -> str:
        text = self._redactor.redact(text)
        return text.replace(self._home, "~") if len(self._home) > 1 else text


def _cleaner(options: dict[str, Any]) -> _Cleaner:
    """Return what takes secrets out: by form, by name, and the values of all keys that aar knows."""
    return _Cleaner(Redactor([*secret_values(os.environ), *_kept_keys(), *_carried(options)]))


def _kept_keys() -> Iterator[str]:
    """Yield the keys that `aar auth` keeps in its file; those of a keyring are never read for this."""
    from aar.providers.key_store import KeyStore

    store = KeyStore(paths().config)
    with suppress(AarError):
        for entry in store.entries():
            key = store.get(entry.provider, entry.host) if entry.where == "file" else None
            if key is not None:
                yield key.get_secret_value()


def _carried(options: dict[str, Any]) -> Iterator[str]:
    """Yield the values that settings carry to others, so that a log that quotes them is clean too."""
    base, _ = load(options)
    values = _raw() if base is None else base.config.model_dump(mode="json")
    waiting: list[tuple[bool, Any]] = [(False, values)]
    while waiting:
        carried, value = waiting.pop()
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            waiting += [(carried or key in ("headers", "env", "extra"), item) for key, item in table.items()]
        elif isinstance(value, list):
            waiting += [(carried, item) for item in cast("list[Any]", value)]
        elif carried and isinstance(value, str) and len(value) >= 8 and "${" not in value:
            yield value


def _raw() -> dict[str, Any]:
    """Return what the user's config says when it is not right: secrets in it are secrets all the same."""
    import tomllib

    try:
        return tomllib.loads(paths().user_config.read_text(encoding="utf-8", errors="replace"))
    except (OSError, tomllib.TOMLDecodeError, RecursionError):
        return {}


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    base, problem = load(options)
    if base is None:
        return {"problem": problem}
    origins = {key: origin.place for key, origin in base.loaded.origins.items()}
    return {
        "settings": _masked(base.config.model_dump(mode="json", exclude_defaults=True)),
        "origins": origins,
        "notices": list(base.notices),
    }


def _masked(value: Any, key: str = "") -> Any:
    """Return settings in which whatever may carry a secret is told by name or number only."""
    carries = key in _CARRIES or key.endswith("_command") or is_secret_name(key)
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {name: MARK if carries else _masked(item, name) for name, item in table.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return f"{len(items)} of them" if carries else [_masked(item) for item in items]
    plain = key in ("api_key_env",) or not isinstance(value, str)
    return value if plain or not carries else MARK


def _environment() -> Iterator[str]:
    yield f"platform {platform.platform()}"
    yield f"python {platform.python_version()} {platform.python_implementation()}"
    for name in sorted(os.environ):
        own = name.startswith(("AAR_", "XDG_")) and "__" not in name
        if name in _SHOWN or (own and not is_secret_name(name)):
            yield f"{name}={os.environ[name]}"
        elif name.startswith("AAR_") or is_secret_name(name) or name.lower().endswith("_proxy"):
            yield f"{name} is set"


def _packages() -> list[str]:
    from importlib.metadata import distributions

    found = {str(item.metadata["Name"]): item.version for item in distributions() if item.metadata["Name"]}
    return [f"{name} {found[name]}" for name in sorted(found, key=str.lower)]


def _sessions() -> Iterator[str]:
    """Yield names, sizes and times of the newest files, without their folders, which name projects."""
    found = [(path.stat(), path.stem) for path in paths().sessions.glob("*/*.jsonl") if path.is_file()]
    found.sort(key=lambda item: item[0].st_mtime, reverse=True)
    for status, name in found[:_SESSIONS]:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(status.st_mtime))
        yield f"{name} {status.st_size} bytes {when}"


_RECORD = re.compile(r"\S+ \S+ [A-Z]+ \d+ (\S+): ")


def _log() -> Iterator[str]:
    """Yield the end of the log without traced traffic, which is what was said in sessions."""
    from aar.observability.diagnostics_log import tail

    shown = True
    for line in tail(paths().logs, _LOG_LINES):
        record = _RECORD.match(line)
        if record is not None:
            shown = not record[1].startswith("aar.trace")
        if shown:
            yield line
