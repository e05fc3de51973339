"""The file that ``aar extensions new`` writes."""

from __future__ import annotations

_TEXT = '''"""NAME: say in one line what this extension does."""

from typing import Annotated

from aar.extensions.api import BlockResult, CallContext, ExtensionAPI, ExtensionContext, HookEvent, PanelLine

AAR_API = "1.0"


def register(api: ExtensionAPI) -> None:
    """Called once when aar loads this file. Everything is added here."""

    @api.tool(side_effects=["read"])
    async def NAME_count_lines(path: Annotated[str, "File of the project."], context: CallContext) -> str:
        """Count the lines of a file. Use it when only the length of a file matters."""
        text = await context.read_text(path)
        return f"{path} has {len(text.splitlines())} lines."

    @api.command("COMMAND", summary="Show how the session stands.")
    def show(argument: str, context: ExtensionContext) -> str:
        return f"{context.numbers.steps} steps, {context.numbers.tool_calls} tool calls so far."

    @api.on("before_tool", tools="bash")
    def no_sudo(event: HookEvent, context: ExtensionContext) -> BlockResult | None:
        command = str(event.arguments.get("command", ""))
        return api.block("sudo is not used here") if command.startswith("sudo ") else None

    @api.panel("COMMAND", title="NAME")
    def panel(context: ExtensionContext) -> list[PanelLine]:
        return [PanelLine("tool calls", "field", str(context.numbers.tool_calls))]
'''


def template(name: str) -> str:
    """Return a first extension called ``name``."""
    return _TEXT.replace("NAME", name).replace("COMMAND", name.replace("_", "-")[:32])
