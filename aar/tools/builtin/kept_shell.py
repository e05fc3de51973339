"""What the commands of one agent leave to the next: the folder, variables, functions, aliases and options.

Each command still has a process and a wall of its own. Around it stand a few lines of shell: before it they
take up what the command before has left, after it they write down what it leaves. So a command that hangs
takes nothing with it. One that was allowed more than others, or for what its words commonly do, begins with a
clean shell, in which no function, alias, variable or option of earlier ones changes what it means.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aar.protocol.ports import SpawnResult
from aar.safety.beneath import FOLDER, open_beneath

MAX_STATE: Final = 1_000_000
"""Bytes that a command may leave to the next."""
_VARIABLE: Final = "AAR_SHELL"
_BEFORE: Final = "before"
_AFTER: Final = "after"
_GONE: Final = b"gone"

_SCRIPT: Final = r"""eval "$3"; eval "$__aar_command"; { __aar_save; } 2>/dev/null; \exit "$__aar_code" """
"""One line, so that the shell's messages tell the lines of the command."""
_CLEAN: Final = (
    r"""\cd -- "$2" 2>/dev/null || { \printf gone >"$3/after"; \exit 1; }; __aar_folder=$3; """
    r"""trap '{ \pwd -P; \printf "\0\0"; } >|"$__aar_folder/after" 2>/dev/null' EXIT; eval "set --; $1" """
)
"""The shell's folder lasts all the same: the policy knows it."""
_BEGIN: Final = r"""
__aar_command=$1 __aar_at=$2 __aar_folder=$AAR_SHELL __aar_saved= __aar_exported= __aar_options=
set --
unset AAR_SHELL
if ! \cd -- "$__aar_at" 2>/dev/null; then
  \printf gone >"$__aar_folder/after"
  \exit 1
fi
trap '[ -n "$__aar_saved" ] || { __aar_save; } 2>/dev/null' EXIT
"""

_BASH: Final = rf"""{_BEGIN}
__aar_names() {{
  builtin compgen "$1" >|"$__aar_folder/names"
  while IFS= builtin read -r __aar_name; do
    case $__aar_name in
      __aar*|_|HOME|CDPATH|PWD|SHLVL|BASH*|DIRSTACK|EPOCH*|EUID|UID|PPID|FUNCNAME|GROUPS|HISTCMD|LINENO) ;;
      PIPESTATUS|RANDOM|SECONDS|SRANDOM|SHELLOPTS|OPTIND|OPTARG|COMP_*|TMPDIR|AAR_*|*_proxy|*_PROXY) ;;
      *) "$2" "$__aar_name" ;;
    esac
  done <"$__aar_folder/names"
}}
__aar_show() {{ builtin printf '%s ' "$1"; }}
__aar_declare() {{ builtin declare -p "$1"; }}
__aar_drop() {{
  case $__aar_exported in
    *" $1 "*) ;;
    *) builtin unset -v "$1" ;;
  esac
}}
__aar_save() {{
  __aar_code=$?
  [ -z "$__aar_saved" ] || builtin return
  __aar_saved=1
  {{
    builtin pwd -P
    builtin printf '\0__aar_options="'
    builtin set +o
    builtin set +eux
    builtin printf '"\n'
    builtin shopt -p
    builtin umask -p
    builtin printf '__aar_exported=" '
    __aar_names -e __aar_show
    builtin printf '"\n'
    __aar_names -v __aar_declare
    builtin unset -f __aar_save __aar_names __aar_show __aar_declare __aar_drop
    builtin declare -f
    builtin declare -Fx
    builtin alias -p
    builtin printf '\0'
  }} >|"$__aar_folder/after"
}}
if [ -s "$__aar_folder/before" ]; then
  . "$__aar_folder/before" >/dev/null 2>&1
  [ -z "$__aar_exported" ] || {{ __aar_names -e __aar_drop; }} 2>/dev/null
  eval "$__aar_options"
fi
"""

_SH: Final = rf"""{_BEGIN}
__aar_save() {{
  __aar_code=$?
  [ -z "$__aar_saved" ] || return
  __aar_saved=1
  set +eux
  {{
    pwd -P
    printf '\0'
    (unset HOME CDPATH PWD TMPDIR
    unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
    export -p)
    printf '\0'
  }} >|"$__aar_folder/after"
}}
if [ -s "$__aar_folder/before" ]; then
  . "$__aar_folder/before" >/dev/null 2>&1
fi
"""
"""A plain ``sh`` tells only of exported variables, not of functions."""


@dataclass(frozen=True, slots=True)
class KeptLine:
    """One command of a kept shell; implements `aar.protocol.ports.ShellLine`.

    Attributes:
        argv: Program and arguments that run it.
        env: Additions to its environment.
        clean: Whether it gets and leaves nothing but the folder.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    clean: bool
    _shell: KeptShell
    _folder: Path

    def ended(self, result: SpawnResult) -> str:
        """Take up what the command left; return what the model should know of it, or nothing."""
        try:
            return self._shell.take(self._folder, result, clean=self.clean)
        finally:
            self.dropped()

    def dropped(self) -> None:
        """Forget the command: what it leaves is not taken up."""
        shutil.rmtree(self._folder, ignore_errors=True)


class KeptShell:
    """The shell of one agent; implements `aar.protocol.ports.KeptShell`.

    Args:
        program: Path of bash or sh.
        workspace: Where it begins.
        temp_folder: Returns the folder that commands may write as well.
        renewed: Whether there was another one in this session before, in a process that has ended.
    """

    def __init__(
        self, program: str, workspace: Path, temp_folder: Callable[[], Path], *, renewed: bool = False
    ) -> None:
        self._program, self.workspace, self._temp_folder = program, workspace, temp_folder
        self._setup = _BASH if Path(program).name == "bash" else _SH
        self._state = b""
        self._renewed = renewed
        self._folder = workspace

    def current_folder(self) -> Path:
        """Return where the next command runs."""
        return self._folder

    def line(self, command: str, *, clean: bool) -> KeptLine:
        """Return how a command is run.

        Args:
            command: Shell text.
            clean: Whether it gets nothing but the folder, and leaves nothing but the folder.
        """
        folder = Path(tempfile.mkdtemp(prefix="shell-", dir=self._temp_folder()))
        if clean:
            argv = (self._program, "-c", _CLEAN, "bash", command, str(self._folder), str(folder))
            return KeptLine(argv, {}, clean, self, folder)
        (folder / _BEFORE).write_bytes(self._state)
        argv = (self._program, "-c", _SCRIPT, "bash", command, str(self._folder), self._setup)
        return KeptLine(argv, {_VARIABLE: str(folder)}, clean, self, folder)

    def take(self, folder: Path, result: SpawnResult, *, clean: bool) -> str:
        """Take up what a command wrote into ``folder``; see `KeptLine.ended`."""
        told = self._told_once()
        left = None if result.timed_out else _read(folder)
        if left == _GONE:
            gone, self._folder = self._folder, self.workspace
            return (
                f"{told}The shell's folder {gone} is gone, so the command did not run. The shell is in "
                f"the project folder again; send the command again if that is right for it."
            )
        if clean and self._state:
            told += "This command ran in a clean shell, without what others set; only its folder lasts. "
        parts = left.split(b"\0") if left is not None else []
        if len(parts) != 3 or not (place := os.fsdecode(parts[0].removesuffix(b"\n"))).startswith("/"):
            return f"{told}The shell's folder and variables are as before this command."
        moved = Path(place) != self._folder
        self._folder = Path(place)
        if not clean:
            self._state = parts[1]
        return told + (f"The shell is now in {self._shown()}." if moved else "")

    def _shown(self) -> str:
        if self._folder == self.workspace:
            return "the project folder"
        if self._folder.is_relative_to(self.workspace):
            return str(self._folder.relative_to(self.workspace))
        return str(self._folder)

    def _told_once(self) -> str:
        """Return what is said with the first command where an earlier process had the shell."""
        told = "This is a new shell: what earlier ones were left in is gone. " if self._renewed else ""
        self._renewed = False
        return told


def _read(folder: Path) -> bytes | None:
    """Return what a command left; ``None``: nothing, or nothing that can be taken up.

    Commands may write there, so no link is followed and nothing but a plain file of bounded size is read.
    """
    try:
        top = os.open(folder, FOLDER)
        try:
            fd = open_beneath(top, (_AFTER,), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(top)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1 or facts.st_size > MAX_STATE:
            return None
        return file.read(MAX_STATE)
