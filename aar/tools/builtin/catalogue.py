"""All built-in tools."""

from __future__ import annotations

from aar.protocol.tool import ToolSpec


def builtin_tools() -> list[ToolSpec]:
    """Return the specs of every built-in tool, in the order in which the model sees them."""
    from aar.tools.builtin import edit, files, lists, output, patch, planning, search, shell, web

    families = (files, edit, patch, lists, search, shell, output, web, planning)
    return [spec for family in families for spec in family.tools()]
