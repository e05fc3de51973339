"""aar's own calls of git, which run nothing that a repository names (SECURITY T6).

Git starts programs that ``.git/config`` and ``.gitattributes`` name: fsmonitor, hooks, external diffs, text
conversions and clean filters. Options of the call take them away; filters have to be named one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from aar.protocol.ports import Spawner, SpawnRequest, SpawnResult

_TIMEOUT_S = 20.0
_MAX_OUTPUT = 20_000_000
_OFF = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.sshCommand=false",
    "core.askPass=",
    "core.editor=false",
    "core.pager=cat",
    "core.alternateRefsCommand=",
    "credential.helper=",
    "diff.external=",
    "protocol.allow=never",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "log.showSignature=false",
)
_DIFFS = frozenset({"diff", "log", "show", "diff-files", "diff-index", "diff-tree", "format-patch", "stash"})
_DRIVER = re.compile(r"filter\.(.+)\.(?:clean|smudge|process|required)", re.DOTALL)
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_EXTERNAL_DIFF": "",
    "GIT_NO_LAZY_FETCH": "1",
}


def git_argv(args: Iterable[str], filters: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the words of a call of git in which the repository's programs do not run.

    Args:
        args: Subcommand and its words.
        filters: Names of the filter drivers that the repository configures; see `run_git`.
    """
    words = tuple(args)
    off = [*_OFF]
    for name in filters:
        off += (f"filter.{name}.clean=", f"filter.{name}.smudge=", f"filter.{name}.process=")
        off.append(f"filter.{name}.required=false")
    options = [part for setting in off for part in ("-c", setting)]
    guards = ("--no-ext-diff", "--no-textconv") if words[:1] and words[0] in _DIFFS else ()
    return ("git", "--no-pager", "--literal-pathspecs", *options, *words[:1], *guards, *words[1:])


async def run_git(
    spawner: Spawner, root: Path, args: Iterable[str], *, timeout_s: float = _TIMEOUT_S
) -> SpawnResult:
    """Run git in ``root`` as aar's helper; nothing that the repository names runs, trusted or not.

    Raises:
        FileNotFoundError: There is no git.
    """
    listed = await _run(spawner, root, git_argv(_LIST), timeout_s)
    filters = filter_names(listed.output.decode("utf-8", "replace"))
    return await _run(spawner, root, git_argv(args, filters), timeout_s)


_LIST = ("config", "--name-only", "-z", "--get-regexp", r"^filter\.")


def filter_names(listed: str) -> tuple[str, ...]:
    """Return the names of filter drivers in the output of ``git config --name-only -z --get-regexp``."""
    found = (_DRIVER.fullmatch(key) for key in listed.split("\0"))
    return tuple(dict.fromkeys(match[1] for match in found if match is not None))


async def _run(spawner: Spawner, root: Path, argv: tuple[str, ...], timeout_s: float) -> SpawnResult:
    return await spawner.run(
        SpawnRequest(
            argv,
            root,
            env=_ENVIRONMENT,
            kind="helper",
            timeout_s=timeout_s,
            max_output=_MAX_OUTPUT,
            merge_stderr=False,
        )
    )
