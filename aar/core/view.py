"""How a model sees a session: system prompt, messages and tools, in the model's dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aar.core.project_files import ProjectFiles
from aar.core.prompt import SystemPrompt
from aar.core.provider_runner import ActiveModel
from aar.core.session import Session
from aar.protocol.tool import SideEffect, ToolSpec
from aar.providers.base import ProviderRequest
from aar.providers.text_tools import Parser, make_parser, render_messages

_WRITES = frozenset({SideEffect.WRITE})


@dataclass
class SessionView:
    """The `ModelView` of one agent in one session.

    Attributes:
        session: What happened.
        active: The model, with its capabilities.
        prompt: System prompt.
        tools: Tools that the model may use.
        resolve: Our name of a tool for a name that a model used, or ``None``.
        files: The project, for the ``files`` dialect.
        agent_id: Whose conversation.
        settings: More fields of the request (``max_output_tokens``, ``temperature`` …).
    """

    session: Session
    active: ActiveModel
    prompt: SystemPrompt
    tools: tuple[ToolSpec, ...]
    resolve: Callable[[str], str | None]
    files: ProjectFiles | None = None
    agent_id: str = "main"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def dialect(self) -> str:
        """The model's dialect."""
        return self.active.capabilities.dialect

    def request(self, *, tools: bool) -> ProviderRequest:
        """Return the next request; without tools the model can only answer in text."""
        messages = self.session.messages(self.agent_id)
        if self.dialect != "native":
            messages = render_messages(messages, self.active.capabilities.dialect)
        return ProviderRequest(
            model=self.active.model,
            system=self.prompt.text,
            messages=messages,
            tools=self.tools if tools and self.dialect == "native" else (),
            cache_key=self.session.session_id,
            **self.settings,
        )

    def make_parser(self, *, tools: bool) -> Callable[[], Parser] | None:
        """Return a maker of parsers for calls that are written as text; ``None`` where none may be."""
        if not tools:
            return None
        return lambda: make_parser(self.active.capabilities.dialect, self.resolve, self.files)

    def ends_turn(self, tool_names: list[str]) -> bool:
        """Tell whether calls of these tools are the model's whole turn.

        A model of the ``files`` dialect gives its files and is done; asking it again "what next?" would
        only make it repeat them.
        """
        if self.dialect != "files":
            return False
        effects = {tool.name: tool.side_effects for tool in self.tools}
        return all(effects.get(name, frozenset()) & _WRITES for name in tool_names)
