"""Prompts that aar writes well: rules for a project, commits, pull requests; files to attach."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from aar.commands import git_facts
from aar.commands.base import (
    Command,
    Context,
    Failure,
    Result,
    Submit,
    UiAction,
    need_no_argument,
)
from aar.config.files import UnusableFileError, read_regular
from aar.protocol.errors import ToolFailure, UsageError

_INIT = """\
Write the file AGENTS.md in the root of this project: what a coding assistant that has never seen it must
know.

Look first: the README, the files that describe the build (pyproject.toml, package.json, Makefile, CI files
and the like), the layout of the folders, two or three typical source files and their tests. Then write, in
at most about 60 lines:
- what the project is, in two sentences;
- the commands that really work here to build, to test (all, and one test), to lint and to format;
- where things live and how the parts depend on each other;
- the conventions that the code follows and a newcomer would miss;
- traps that you saw.
Only what you found in the files: no generalities, nothing invented. {existing}"""
_EXISTS = "There is an AGENTS.md already: keep what is still true and improve it."
_FRESH = "There is none yet."

_COMMIT = """\
Commit the changes of this repository, on the branch {branch}.

{what} Look at the diff first (`git diff` and `git diff --staged` show what is cut above). Leave out what does
not belong: secrets, build results, debugging code; say so if there is any. Write the message in the style of
the last commits: a subject of at most 72 characters that says what the change does, and a body only if the
reason is not obvious; a template of the repository that is attached holds. Do not push, do not amend, do not
skip hooks; if a hook fails, tell me what it said.{wish}"""
_COMMIT_FILES = (".gitmessage", ".github/commit-template.txt", ".commitlintrc", ".commitlintrc.json")
_PR_FILES = (
    ".github/pull_request_template.md",
    ".github/PULL_REQUEST_TEMPLATE.md",
    "pull_request_template.md",
    "docs/pull_request_template.md",
    ".gitlab/merge_request_templates/Default.md",
)
_HOOK_FILES = (".pre-commit-config.yaml", "lefthook.yml")
_MAX_TEMPLATE = 8_000
_STAGED = "Some changes are staged: commit exactly those."
_UNSTAGED = "Nothing is staged: stage what belongs together, by name, not with `git add -A`."

_PR = """\
Open a pull request for the branch {branch}{onto}.

Read the commits and the diff. Make sure that everything is committed; if not, stop and tell me. Push the
branch to its remote (never by force), then open the pull request with the tool of this host (`gh pr create`,
`glab mr create`) if it is there, else print title and text for me. Title: what the change does, at most 72
characters. Text: why, what changed, how it was checked, what a reviewer should look at; in the form of the
template, if one is attached.{wish}"""


async def _init(context: Context, argument: str) -> Result:
    """Let the agent write AGENTS.md."""
    need_no_argument(argument, "init")
    there = await asyncio.to_thread((context.runtime.workspace / "AGENTS.md").exists)
    prompt = _INIT.format(existing=_EXISTS if there else _FRESH)
    return Submit(prompt, "Writing AGENTS.md from what the repository tells.")


async def _commit(context: Context, argument: str) -> Result:
    """Let the agent commit."""
    branch = await git_facts.need_repository(context)
    status = await git_facts.git(context, "status", "--short") or ""
    if not status.strip():
        return Failure("There is nothing to commit: the working tree is clean.")
    staged = await git_facts.diff(context, "--cached")
    facts = (
        ("last commits", await git_facts.git(context, "log", "-8", "--format=%s") or ""),
        ("git status", status),
        ("git diff --staged", staged),
        ("git diff", await git_facts.diff(context)),
        *await asyncio.to_thread(_habits, context.runtime.workspace, _COMMIT_FILES),
    )
    what = _STAGED if staged.strip() else _UNSTAGED
    prompt = _COMMIT.format(what=what, branch=branch, wish=_wish(argument))
    return Submit(prompt, f"Committing on {branch}.", facts)


def _habits(root: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the repository's own templates, and which hooks git will run."""
    found: list[tuple[str, str]] = []
    for name in names:
        with suppress(UnusableFileError):
            data = read_regular(root / name, _MAX_TEMPLATE, inside=root.resolve())
            if data:
                found.append((name, data[:_MAX_TEMPLATE].decode("utf-8", "replace")))
    if names is _COMMIT_FILES:
        places = (*(root / ".git/hooks").glob("*"), *(root / ".husky").glob("[a-z]*"))
        hooks = sorted(path.name for path in places if path.is_file() and path.suffix != ".sample")
        hooks += [name for name in _HOOK_FILES if (root / name).is_file()]
        found.append(("hooks that run on a commit", "\n".join(hooks)))
    return found


def _wish(argument: str) -> str:
    return f"\n\nThe user adds: {argument}" if argument else ""


async def _pr(context: Context, argument: str) -> Result:
    """Let the agent open a pull request."""
    branch = await git_facts.need_repository(context)
    base = await git_facts.base_branch(context)
    if base is not None and base.removeprefix("origin/") == branch:
        return Failure(f"You are on {branch} itself; make a branch for the pull request first.")
    span = f"{base}..HEAD" if base else "-20"
    log = await git_facts.git(context, "log", "--format=%h %s%n%b", span) or ""
    if base and not log.strip():
        return Failure(f"{branch} has no commits that {base} lacks; commit something first (/commit).")
    stat = await git_facts.diff(context, "--stat", f"{base}...HEAD") if base else ""
    facts = (
        ("commits", log),
        ("git status", await git_facts.git(context, "status", "--short") or ""),
        ("git diff --stat", stat),
        *await asyncio.to_thread(_habits, context.runtime.workspace, _PR_FILES),
    )
    prompt = _PR.format(branch=branch, onto=f" onto {base}" if base else "", wish=_wish(argument))
    return Submit(prompt, f"Preparing a pull request for {branch}.", facts)


async def _attach(context: Context, argument: str) -> Result:
    """Attach a file to the next prompt."""
    path = argument.strip("'\"")
    if not path:
        raise UsageError("Say which file: /attach PATH.")
    files = context.runtime.files()
    try:
        there = await asyncio.to_thread(files.exists, path)
    except ToolFailure as error:
        return Failure(error.message)
    if not there:
        return Failure(f"There is no file {path} here.")
    return UiAction("attach", {"path": path})


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("init", "Let the agent write AGENTS.md, the rules of this project.", _init, group="work"),
        Command("commit", "Let the agent commit the changes with a fitting message.", _commit,
                usage="[WISH]", group="work"),
        Command("pr", "Let the agent open a pull request for this branch.", _pr, usage="[WISH]",
                group="work"),
        Command("attach", "Attach a file to the next prompt.", _attach, usage="PATH", group="work",
                action="attach", example="/attach notes/design.md"),
    ]  # fmt: skip
