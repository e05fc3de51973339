"""What git tells about the workspace, for prompts and screens. Nothing that the repository names is run."""

from __future__ import annotations

from aar.commands.base import Context
from aar.protocol.errors import UsageError
from aar.safety.git_calls import run_git

MAX_CHARS = 24_000
"""Characters of one answer that are kept."""
_TIMEOUT_S = 15.0


async def git(context: Context, *words: str) -> str | None:
    """Return what ``git WORDS`` prints; ``None`` when it fails (no repository, no such branch, no git)."""
    runtime = context.runtime
    try:
        ended = await run_git(runtime.spawner, runtime.workspace, words, timeout_s=_TIMEOUT_S)
    except OSError:
        return None
    if ended.exit_code != 0:
        return None
    text = ended.output.decode("utf-8", "replace")
    if len(text) <= MAX_CHARS:
        return text
    return f"{text[:MAX_CHARS]}\n[cut: {len(text) - MAX_CHARS:,} more characters]\n"


async def need_repository(context: Context) -> str:
    """Return the name of the branch, or the commit where none is checked out.

    Raises:
        UsageError: The workspace is in no git repository.
    """
    branch = await git(context, "symbolic-ref", "--short", "-q", "HEAD")
    if branch is None:
        branch = await git(context, "rev-parse", "--short", "HEAD")
    if branch is None:
        raise UsageError(f"{context.runtime.workspace} is not in a git repository (or git is missing).")
    return branch.strip()


async def diff(context: Context, *words: str) -> str:
    """Return a diff."""
    return await git(context, "diff", *words) or ""


async def base_branch(context: Context) -> str | None:
    """Return the branch that pull requests go to, as far as git can tell."""
    told = await git(context, "symbolic-ref", "--short", "-q", "refs/remotes/origin/HEAD")
    for name in (told or "", "origin/main", "origin/master", "main", "master"):
        if name.strip() and await git(context, "rev-parse", "--verify", "-q", f"{name.strip()}^{{commit}}"):
            return name.strip()
    return None
