"""Groups of commands that answer an unknown name with the nearest one."""

from __future__ import annotations

from typing import Any

import click


class NearestGroup(click.Group):
    """A group whose unknown commands are answered with the nearest name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **kwargs)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest name."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        import difflib

        known = self.list_commands(ctx)
        near = difflib.get_close_matches(name, known, 1)
        if " " in name.strip() and ctx.parent is None:
            raise click.UsageError(f'Tasks are given to a command: {ctx.command_path} run "{name}".', ctx)
        hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(known)}."
        raise click.UsageError(f"There is no command '{ctx.command_path} {name}'. {hint}", ctx)
