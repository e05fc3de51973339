"""Shows the state of git beside the conversation, and keeps the model from committing to a main branch."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from aar.extensions.api import BlockResult, CallContext, ExtensionAPI, ExtensionContext, HookEvent, PanelLine

AAR_API = "1.0"
_COMMITS = re.compile(r"(?:^|[;&|]\s*|\s)git\s+(?:-\S+\s+\S+\s+)*(?:commit|merge|rebase|cherry-pick)\b")
_PROTECTED = ("main", "master", "release/*")


def branch_of(context: ExtensionContext) -> str:
    """Return the branch that is checked out; empty: there is none, or no repository."""
    place = context.workspace / ".git"
    try:
        if place.is_file():  # a work tree: its own folder is named there
            place = context.workspace / place.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (place / "HEAD").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""


def register(api: ExtensionAPI) -> None:
    """Add a tool, a hook and a panel."""
    patterns = api.settings.get("protected", _PROTECTED)

    def protected(branch: str) -> bool:
        return any(fnmatchcase(branch, str(pattern)) for pattern in patterns)

    @api.tool(side_effects=["execute"], timeout_s=30)
    async def recent_commits(context: CallContext, count: int = 10) -> str:
        """List the last commits of the present branch with their dates and first lines.

        Inputs: count, at most 50.
        """
        command = f"git --no-pager log -n {max(1, min(count, 50))} --date=short --format='%h %ad %s'"
        done = await context.run(command, timeout_s=20)
        return done.output.strip() or f"There are no commits (git ended with code {done.exit_code})."

    @api.on("before_tool", tools="bash")
    def keep_main(event: HookEvent, context: ExtensionContext) -> BlockResult | None:
        branch = branch_of(context)
        if not protected(branch) or not _COMMITS.search(str(event.arguments.get("command", ""))):
            return None
        return api.block(f"{branch} is protected here; make a branch first (git switch -c NAME)")

    @api.panel("git", title="Git")
    def panel(context: ExtensionContext) -> list[PanelLine]:
        branch = branch_of(context)
        if not branch:
            return []
        tone = "warning" if protected(branch) else "good"
        note = [PanelLine("commits go to another branch", tone="muted")] if protected(branch) else []
        return [PanelLine("branch", "field", branch, tone=tone), *note]
