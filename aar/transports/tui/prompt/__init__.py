"""The prompt: where the user types, what waits to be sent, and what was typed before."""

from aar.transports.tui.prompt.area import PromptArea

__all__ = ["PromptArea"]
