"""How a model sees a session: system prompt, messages and tools, in the model's dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aar.core.prompt import SystemPrompt
from aar.core.provider_runner import ActiveModel
from aar.core.session import Session
from aar.protocol.events import Event, ToolResult
from aar.protocol.messages import Message, TextBlock
from aar.protocol.tool import SideEffect, ToolSpec
from aar.providers.base import ProviderRequest
from aar.providers.history import TextOnlyHistory

if TYPE_CHECKING:
    from aar.core.coaching.files_coach import FilesCoach
    from aar.providers.text_tools import Parser

_OWN = frozenset({"temperature", "max_output_tokens", "stop"})
_TEMPERATURES = (0.0, 0.3, 0.6, 0.8)
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
        coach: Help for a small model.
        agent_id: Whose conversation.
        settings: More fields of the request (``max_output_tokens``, ``temperature`` …).
        more_tools: Returns tools that came in after the start, in the order in which they came.
    """

    session: Session
    active: ActiveModel
    prompt: SystemPrompt
    tools: tuple[ToolSpec, ...]
    resolve: Callable[[str], str | None]
    coach: FilesCoach | None = None
    agent_id: str = "main"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    more_tools: Callable[[], tuple[ToolSpec, ...]] = tuple
    _text_only: TextOnlyHistory = field(default_factory=TextOnlyHistory)
    _told_left_out: int = 0

    @property
    def dialect(self) -> str:
        """The model's dialect."""
        return self.active.capabilities.dialect

    def request(self, *, tools: bool) -> ProviderRequest:
        """Return the next request; without tools the model can only answer in text."""
        messages = self._messages()
        if self.dialect != "native":
            from aar.providers.text_tools import render_messages

            messages = render_messages(messages, self.active.capabilities.dialect)
        if self.active.capabilities.text_only:
            messages = self._text_only.fit(messages)
        return ProviderRequest(
            model=self.active.model,
            system=self.prompt.text,
            messages=messages,
            tools=(*self.tools, *self.more_tools()) if tools and self.dialect == "native" else (),
            extra=self.coach.extra() if tools and self.coach is not None else {},
            cache_key=self.session.session_id,
            temperature=self._temperature(),
            max_output_tokens=self._max_output(),
            stop=self._stop(),
            **{name: value for name, value in self.settings.items() if name not in _OWN},
        )

    def _max_output(self) -> int | None:
        configured: int | None = self.settings.get("max_output_tokens")
        return self.coach.max_output_tokens if configured is None and self.coach is not None else configured

    def _stop(self) -> tuple[str, ...]:
        """Return what ends an answer: what is configured, and where the dialect begins to invent results."""
        configured: Sequence[str] = self.settings.get("stop") or ()
        if self.dialect != "text":
            return tuple(configured)
        from aar.providers.text_tools import STOP_SEQUENCES

        return (*configured, *STOP_SEQUENCES[self.dialect])

    def _messages(self) -> list[Message]:
        if self.coach is None:
            return self.session.messages(self.agent_id)
        fresh = self.coach.fresh()
        if fresh is not None:
            return [fresh]
        return self.coach.remind(without_dead_ends(self.session.messages(self.agent_id)))

    def _temperature(self) -> float | None:
        """Return the temperature: a small model that was sent back must not give the same answer again."""
        configured: float | None = self.settings.get("temperature")
        if self.coach is None or configured is not None:
            return configured
        return _TEMPERATURES[min(self.coach.setbacks, len(_TEMPERATURES) - 1)]

    def make_parser(self, *, tools: bool) -> Callable[[], Parser] | None:
        """Return a maker of parsers for calls that are written as text; ``None`` where none may be."""
        if not tools:
            return None
        return self._new_parser

    def _new_parser(self) -> Parser:
        # Imported with the first text of the first answer, not before the first request.
        from aar.providers.text_tools import make_parser

        dialect, coach = self.active.capabilities.dialect, self.coach
        if coach is None:
            return make_parser(dialect, self.resolve)
        return coach.guard(make_parser(dialect, self.resolve, coach.project, led=True))

    def ends_turn(self, tool_names: list[str]) -> bool:
        """Tell whether calls of these tools are the model's whole turn.

        A model of the ``files`` dialect gives its files and is done; asking it again "what next?" would
        only make it repeat them.
        """
        if self.dialect != "files":
            return False
        effects = {tool.name: tool.side_effects for tool in self.tools}
        return all(effects.get(name, frozenset()) & _WRITES for name in tool_names)

    def review(self, results: Sequence[ToolResult]) -> Event | None:
        """Return what the model should hear about what it wrote, where nothing else checks it."""
        return None if self.coach is None else self.coach.review(results)

    def setback(self, *, failure: str | None = None, objection: str = "") -> None:
        """Take note that an answer was not good enough; see `FilesCoach.set_back`."""
        if self.coach is not None:
            self.coach.set_back(failure, objection)

    def take_notes(self) -> list[str]:
        """Remove and return sentences for the user."""
        notes = [] if self.coach is None else self.coach.take_notes()
        left_out = self._text_only.left_out
        if left_out > self._told_left_out:
            self._told_left_out = left_out
            notes.append(f"{self.active.name} reads text only; images of the conversation are left out.")
        return notes


def without_dead_ends(messages: Sequence[Message]) -> list[Message]:
    """Return ``messages`` without answers that led to nothing, and only the last of the words about them.

    A small model that sees its own wrong answer gives it again. What was wrong with it is kept.
    """
    kept: list[Message] = []
    dead_end = False
    for at, message in enumerate(messages):
        if message.role == "assistant" and not message.tool_uses and at + 1 < len(messages):
            dead_end = True
        elif dead_end and message.role == "user":
            dead_end = False
            base = kept.pop() if kept and kept[-1].role == "user" else None
            first = (
                base.content[:-1] if base is not None and _is_retold(base) else base.content if base else ()
            )
            kept.append(Message(role="user", content=(*first, *message.content[-1:])))
        else:
            kept.append(message)
    return kept


def _is_retold(message: Message) -> bool:
    """Tell whether the last block is already what was said about an earlier dead end."""
    last = message.content[-1]
    return isinstance(last, TextBlock) and "The task is not done yet" in last.text
