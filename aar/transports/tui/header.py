"""The line on top: where, which model, which mode, how full, at what cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

if TYPE_CHECKING:
    from aar.transports.tui.status import Status


class HeaderBar(Static):
    """Shows the facts of a `Status` in one line."""

    def show(self, status: Status) -> None:
        """Show ``status``."""
        cost = f"${status.cost_usd:.4f}" + ("" if status.cost_known else "+")
        parts = [status.title or "new session", status.model, status.mode]
        if status.context_window:
            parts.append(f"{100 * status.context_tokens // status.context_window} %")
        parts.append(cost)
        self.update(Content(" · ".join(part for part in parts if part)), layout=False)
