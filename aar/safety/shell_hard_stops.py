"""Hard stops: what no mode and no rule lets pass unasked (DESIGN 8).

Removal of the root, the home folder, the workspace or ``.git``; ``git reset --hard``, ``git clean -f``,
``git push --force``; writing to devices; power-off. Judged on parsed words, never on the text of a command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from aar.protocol.late import late_pattern
from aar.safety.shell_types import Redirection, SimpleCommand, words

_HARMLESS_DEVICES = late_pattern(
    r"/dev/(null|zero|full|u?random|tty|stdin|stdout|stderr|fd/\d+|shm(/.*)?|pts/\d+)"
)
_DEVICE_WRITERS = words("dd tee cp mv shred truncate install ln cat wipefs blkdiscard sgdisk badblocks")
_DISK_TOOLS = late_pattern(
    r"mkfs(\..+)?|mke2fs|mkswap|wipefs|blkdiscard|[sc]?fdisk|sgdisk|parted|hdparm|nvme"
)
_POWER = words("shutdown poweroff reboot halt")
_POWER_VERBS = words(
    "poweroff reboot halt kexec suspend hibernate hybrid-sleep soft-reboot exit rescue emergency"
)
_FIND_FILTERS = words(
    "-name -iname -path -ipath -wholename -regex -iregex -newer -mtime -mmin -atime -ctime -size -empty -user"
    " -group -perm -links -inum -samefile -cmin -amin -newermt -lname"
)
_ALL = late_pattern(r"[*?.\[\]!]*\*[*?.\[\]!]*|\.\*")
_EXPANSION = late_pattern(r"\$\{?(\w+)\}?|[$`]")


@dataclass(slots=True)
class Places:
    """Folders that commands are judged by.

    Attributes:
        workspace: Resolved root of the project.
        home: The user's home folder.
        cwds: Folders that the command may run in, so far as ``cd`` tells.
        unknown: Whether it may also run in a folder that nobody can tell.
    """

    workspace: Path
    home: Path
    cwds: tuple[Path, ...] = ()
    unknown: bool = False
    extra: tuple[Path, ...] = field(default=())

    def candidates(self, word: str) -> list[Path]:
        """Return every path that ``word`` may mean, without touching the disk for more than links."""
        text = self.expand(word)
        return [normal(cwd / text) for cwd in (self.cwds or (self.workspace,))]

    def expand(self, word: str) -> str:
        """Replace a leading ``~`` and the variables ``HOME`` and ``PWD``."""
        if word == "~" or word.startswith("~/"):
            word = str(self.home) + word[1:]
        known = {"HOME": str(self.home), "PWD": str((self.cwds or (self.workspace,))[0])}
        return re.sub(r"\$\{?(HOME|PWD)\}?(?!\w)", lambda match: known[match[1]], word)


def normal(path: Path) -> Path:
    """Return ``path`` without links, ``..`` and doubled slashes; never raises."""
    text = str(path).replace("\0", "")
    if text.startswith("//"):
        text = "/" + text.lstrip("/")
    try:
        return Path(text).resolve()
    except (OSError, RuntimeError):
        return Path(os.path.normpath(text))


def hard_stop(command: SimpleCommand, places: Places) -> str | None:
    """Return why ``command`` itself must not run unasked, or ``None``."""
    argv = command.argv
    if not argv:
        return None
    name = command.name.casefold()
    if name in {"rm", "unlink", "rmdir", "shred", "mv", "srm", "trash"}:
        found = _removal(name, argv, places)
        if found:
            return found
    if name == "find":
        return _find(argv, places)
    if name == "git":
        return _git(argv)
    return _device(name, argv, places) or _power(name, argv)


def redirect_stop(redirection: Redirection, places: Places) -> str | None:
    """Return why a redirection must not happen unasked, or ``None``."""
    if redirection.writes and _is_device(redirection.target, places):
        return f"writes to the device {redirection.target}"
    return None


def _removal(name: str, argv: tuple[str, ...], places: Places) -> str | None:
    flags = [word for word in argv[1:] if word.startswith("-") and word != "-"]
    short = "".join(flag[1:] for flag in flags if not flag.startswith("--"))
    long = {flag.partition("=")[0] for flag in flags if len(flag) > 2 and flag.startswith("--")}
    recursive = "r" in short.lower() or any("--recursive".startswith(flag) for flag in long)
    if name in {"rm", "srm", "shred"} and not recursive:
        return None
    if name in {"unlink", "rmdir"}:
        return None
    operands = _operands(argv)
    if name == "mv":
        operands = operands[:-1]
    verb = "moves" if name == "mv" else "removes"
    for word in operands:
        what = _precious(word, places)
        if what:
            return f"{verb} {what}"
        if name != "mv" and _untold(word, places):
            return f"removes {word!r}, and what that is cannot be told before it runs"
    return None


def _operands(argv: tuple[str, ...]) -> list[str]:
    if "--" in argv:
        at = argv.index("--")
        return [word for word in argv[1:at] if not word.startswith("-")] + list(argv[at + 1 :])
    return [word for word in argv[1:] if not word.startswith("-")]


def _precious(word: str, places: Places) -> str | None:
    """Name what must not be removed, if ``word`` means it or all that is in it."""
    for alternative in _alternatives(word):
        text = places.expand(alternative)
        while text.endswith("/") and len(text) > 1:
            text = text[:-1]
        head, _, last = text.rpartition("/")
        if _ALL.fullmatch(last):
            text = head or ("/" if text.startswith("/") else ".")
        for path in places.candidates(text):
            what = _what(path, places)
            if what:
                return what
    return None


def _alternatives(word: str) -> Iterable[str]:
    """``{a,b}`` stands for a and b; only the first pair of braces is looked at, with all that it holds."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", word)
    if match is None:
        return [word]
    return [word[: match.start()] + part + word[match.end() :] for part in match[1].split(",")]


def _what(path: Path, places: Places) -> str | None:
    if len(path.parts) == 1:
        return "the root folder"
    if len(path.parts) == 2 and path.name in {
        "home",
        "usr",
        "etc",
        "bin",
        "lib",
        "var",
        "boot",
        "root",
        "Users",
        "sbin",
    }:
        return f"the system folder {path}"
    if places.home.is_relative_to(path):
        return "the home folder"
    if places.workspace.is_relative_to(path):
        return "the workspace"
    if path.name.casefold() == ".git" or (path.parent.name == ".git" and path.name in {"objects", "refs"}):
        return "a repository's .git"
    return None


def _untold(word: str, places: Places) -> bool:
    """Whether the first part of a path is only known when the command runs (``rm -rf $X``)."""
    expanded = places.expand(word)
    match = _EXPANSION.search(expanded)
    return (
        match is not None
        and "/" not in expanded[: match.start()].strip("/")
        and not expanded[: match.start()].strip("/")
    )


def _find(argv: tuple[str, ...], places: Places) -> str | None:
    acts = any(word == "-delete" for word in argv) or any(
        argv[at].startswith("-exec") and argv[at + 1].rsplit("/", 1)[-1] in {"rm", "shred", "unlink"}
        for at in range(len(argv) - 1)
    )
    filtered = any(
        argv[at] in _FIND_FILTERS and not re.fullmatch(r"[*?/.]*", argv[at + 1] if at + 1 < len(argv) else "")
        for at in range(len(argv))
    )
    if not acts or filtered or "-empty" in argv:
        return None
    roots: list[str] = []
    for word in argv[1:]:
        if word.startswith(("-", "(", "!")):
            break
        roots.append(word)
    for root in roots or ["."]:
        what = _precious(root, places)
        if what:
            return f"removes {what}"
    return None


_GIT_VALUED = words(
    "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source"
)


def git_words(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a git command into its global options and the subcommand with its words."""
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in _GIT_VALUED else 1
    return argv[1:at], argv[at:]


def _git(argv: tuple[str, ...]) -> str | None:
    options, rest = git_words(argv)
    if not rest:
        return None
    verb, flags = rest[0], [word for word in rest[1:] if word.startswith("-") and word != "--"]
    short = "".join(flag[1:] for flag in flags if not flag.startswith("--"))
    if verb == "reset" and any(_abbreviates(flag, "--hard") for flag in flags):
        return "git reset --hard throws away changes"
    if verb == "clean":
        forced = "f" in short or any(_abbreviates(flag, "--force") for flag in flags)
        dry = "n" in short or any(_abbreviates(flag, "--dry-run") for flag in flags)
        if (forced or any("requireforce" in word.casefold() for word in options)) and not dry:
            return "git clean -f removes files for good"
    if verb == "push":
        forced = "f" in short or any(flag.startswith(("--forc", "--mir")) for flag in flags)
        if forced or any(word.startswith("+") for word in rest[1:]):
            return "git push --force overwrites history"
    return None


def _abbreviates(flag: str, option: str) -> bool:
    """Git takes any unambiguous beginning of a long option."""
    return len(flag) > 3 and option.startswith(flag)


def _is_device(word: str, places: Places) -> bool:
    text = places.expand(word)
    path = str(normal(Path(text))) if text.startswith("/") else text
    wanted = next(
        (item for item in (os.path.normpath(text), path) if item.lstrip("/").startswith("dev/")), None
    )
    if wanted is None or text.startswith(("/dev/tcp/", "/dev/udp/")):
        return False
    return not _HARMLESS_DEVICES.fullmatch("/" + os.path.normpath(text).lstrip("/"))


def _device(name: str, argv: tuple[str, ...], places: Places) -> str | None:
    if _DISK_TOOLS.fullmatch(name) and any(not word.startswith("-") for word in argv[1:]):
        return f"{name} changes a disk"
    if name not in _DEVICE_WRITERS or name in {"cat"}:
        return None
    targets = (
        [word.removeprefix("of=") for word in argv[1:] if word.startswith("of=")]
        if name == "dd"
        else list(argv[1:])
    )
    if name in {"cp", "mv", "ln", "install"}:
        targets = targets[-1:]
    return next((f"writes to the device {word}" for word in targets if _is_device(word, places)), None)


def _power(name: str, argv: tuple[str, ...]) -> str | None:
    if name in _POWER and not {"--help", "--version"} & set(argv):
        return f"{name} stops the machine"
    if name in {"systemctl", "loginctl"} and any(word in _POWER_VERBS for word in argv[1:]):
        return f"{name} stops the machine"
    if name in {"init", "telinit"} and any(word in {"0", "6"} for word in argv[1:]):
        return f"{name} stops the machine"
    return None
