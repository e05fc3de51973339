"""All built-in tools."""

from __future__ import annotations

from aar.protocol.tool import ToolSpec


def builtin_tools(*, persistent_shell: bool = False) -> list[ToolSpec]:
    """Return the specs of every built-in tool, in the order in which the model sees them.

    Args:
        persistent_shell: Whether the commands of an agent share a shell.
    """
    from aar.tools.builtin import edit, files, lists, output, patch, planning, search, shell, web

    before, after = (files, edit, patch, lists, search), (output, web, planning)
    return [
        *(spec for family in before for spec in family.tools()),
        *shell.tools(persistent=persistent_shell),
        *(spec for family in after for spec in family.tools()),
    ]
