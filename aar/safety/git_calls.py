"""aar's own calls of git, which run nothing that a repository names (SECURITY T6).

Git starts programs that ``.git/config`` and ``.gitattributes`` name: fsmonitor, hooks, external diffs, text
conversions and clean filters. Options of the call take them away; filters have to be named one by one.
Where git looks into a repository inside of the repository, it starts a git that obeys the inner one's
settings: so it is kept from looking.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
    "diff.submodule=short",
    "status.submoduleSummary=false",
)
_DIFFS = frozenset({"diff", "log", "show", "diff-files", "diff-index", "diff-tree", "format-patch", "stash"})
_LOOKS_INSIDE = frozenset({"status", "diff", "diff-files", "diff-index"})
"""Calls that would ask each inner repository what changed in it."""
_DRIVER = re.compile(r"filter\.(.+)\.(?:clean|smudge|process|required)", re.DOTALL)
_MERGE = re.compile(r"merge\.(.+)\.driver", re.DOTALL)
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_EXTERNAL_DIFF": "",
    "GIT_NO_LAZY_FETCH": "1",
}


def git_argv(
    args: Iterable[str],
    filters: Iterable[str] = (),
    inner: Iterable[str] = (),
    mergers: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the words of a call of git in which the repository's programs do not run.

    Args:
        args: Subcommand and its words; ``add`` without paths, for all below the folder.
        filters: Names of the filter drivers that the repository configures; see `run_git`.
        inner: Paths of the repositories inside that ``add`` passes over.
        mergers: Names of the merge drivers that the repository configures: what they would merge conflicts.
    """
    words = tuple(args)
    off = [*_OFF]
    for name in filters:
        off += (f"filter.{name}.clean=", f"filter.{name}.smudge=", f"filter.{name}.process=")
        off.append(f"filter.{name}.required=false")
    off += [f"merge.{name}.driver=false" for name in mergers]
    options = [part for setting in off for part in ("-c", setting)]
    guards = ("--no-ext-diff", "--no-textconv") if words[:1] and words[0] in _DIFFS else ()
    if words[:1] and words[0] in _LOOKS_INSIDE:
        guards = (*guards, "--ignore-submodules=dirty")
    if words[:1] == ("add",):
        left_out = (f":(top,exclude,literal){path}" for path in inner)
        return ("git", "--no-pager", *options, *words, "--", ".", *left_out)
    return ("git", "--no-pager", "--literal-pathspecs", *options, *words[:1], *guards, *words[1:])


async def run_git(
    spawner: Spawner,
    root: Path,
    args: Iterable[str],
    *,
    timeout_s: float = _TIMEOUT_S,
    env: Mapping[str, str] | None = None,
    max_output: int = _MAX_OUTPUT,
) -> SpawnResult:
    """Run git in ``root`` as aar's helper; nothing that the repository names runs, trusted or not.

    Args:
        spawner: Starts it.
        root: Where it runs.
        args: Subcommand and its words; ``add`` without paths, for all below ``root``.
        timeout_s: Seconds.
        env: More variables.
        max_output: Bytes of output that are kept.

    Raises:
        FileNotFoundError: There is no git.
    """
    words = tuple(args)

    async def run(argv: tuple[str, ...], most: int) -> SpawnResult:
        request = SpawnRequest(
            argv,
            root,
            env={**_ENVIRONMENT, **(env or {})},
            kind="helper",
            timeout_s=timeout_s,
            max_output=most,
            merge_stderr=False,
        )
        return await spawner.run(request)

    listed = await run(git_argv(_LIST), _MAX_OUTPUT)
    keys = listed.output.decode("utf-8", "replace")
    filters, mergers = filter_names(keys), _names(_MERGE, keys)
    inner: tuple[str, ...] = ()
    if words[:1] == ("add",):
        index = await run(git_argv(_INDEX), _MAX_INDEX)
        inner = inner_repositories(index.output.decode("utf-8", "surrogateescape"))
    return await run(git_argv(words, filters, inner, mergers), max_output)


_LIST = ("config", "--name-only", "-z", "--get-regexp", r"^(filter|merge)\.")


def filter_names(listed: str) -> tuple[str, ...]:
    """Return the names of filter drivers in the output of ``git config --name-only -z --get-regexp``."""
    return _names(_DRIVER, listed)


def _names(pattern: re.Pattern[str], listed: str) -> tuple[str, ...]:
    found = (pattern.fullmatch(key) for key in listed.split("\0"))
    return tuple(dict.fromkeys(match[1] for match in found if match is not None))


_INDEX = ("ls-files", "--stage", "--full-name", "-z")
_MAX_INDEX = 400_000_000


def inner_repositories(staged: str) -> tuple[str, ...]:
    """Return the repositories inside, by path from the top, in the output of ``git ls-files --stage -z``."""
    entries = (entry.partition("\t") for entry in staged.split("\0") if entry.startswith("160000 "))
    return tuple(dict.fromkeys(path for _, _, path in entries))
