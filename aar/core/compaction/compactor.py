"""Keeps a conversation inside the model's window: old outputs become notes, the oldest turns a summary.

Nothing is rewritten: each compaction is one event, which changes what the model is sent. It comes at a
threshold and goes far below it, so that in between the prompt only grows at its end and prompt caches live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aar.config.schema import ContextConfig, ModelConfig
from aar.core.active_model import ActiveModel
from aar.core.compaction.meter import message_tokens, session_tokens
from aar.core.tokens import estimate_text, estimate_tools
from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.events import Compaction, Notice
from aar.protocol.ports import Emit
from aar.protocol.state import AgentState
from aar.protocol.usage import Usage

if TYPE_CHECKING:
    # What shortens is imported when something has to be shortened: few runs come to that.
    from aar.core.compaction.facts import Gathered, Words
    from aar.core.compaction.notes import Notes
    from aar.core.compaction.plan import Cut, Shrink
    from aar.core.fold import TurnOutline
    from aar.core.view import SessionView

_TARGET = 0.6
"""Share of the room for the conversation that may be filled after a compaction."""
_KEEP = 0.25
_SUMMARY = 0.3
_MOST_KEPT = 60_000
_MOST_SUMMARY = 16_000
_USUAL_ANSWER = 8192
_LEAST_ROOM = 400
_TRUSTED_RATIO = (0.5, 2.0)
_FEW_STEPS = 2
_MOST_FRUITLESS = 2
_AFTER_OVERFLOW = 0.7
_BELOW_CEILING = 0.85
_WORTH_ASKING = 1000
"""Tokens of conversation below which no summary would be shorter."""

THRASHING = (
    "The conversation was compacted twice in a row and still does not fit into the window of {model} "
    "({tokens:,} of {window:,} tokens). Begin a new session, name a smaller part of the work, or take a "
    "model with a larger window."
)
TOO_LONG = (
    "{said} Compacting did not make it fit: shorten the last message, begin a new session, or take a model "
    "with a larger window."
)


@dataclass(frozen=True, slots=True)
class Window:
    """What fits, in tokens.

    Attributes:
        size: Of the window.
        usable: Without what is reserved for the answer.
        limit: Where the conversation is compacted.
        overhead: System prompt and tools.
    """

    size: int
    usable: int
    limit: int
    overhead: int

    @property
    def room(self) -> int:
        """Tokens of conversation up to the limit."""
        return max(_LEAST_ROOM, self.limit - self.overhead)


def output_reserve(view: SessionView) -> int:
    """Return the tokens of the window that are kept for the answer."""
    window, known = view.active.capabilities.context_window, view.active.capabilities.max_output_tokens
    wanted: int | None = view.settings.get("max_output_tokens")
    return min(wanted or min(known or _USUAL_ANSWER, _USUAL_ANSWER), window // 4)


def window_of(view: SessionView, compact_at: float) -> Window:
    """Return what fits into the window of the model of ``view``."""
    size = view.active.capabilities.context_window
    usable = size - output_reserve(view)
    native = view.dialect == "native"
    overhead = estimate_text(view.prompt.text) + (estimate_tools(view.tools) if native else 0)
    # A model that is led step by step has a small window, of which the prompt takes most.
    share = 1.0 if view.coach is not None else compact_at
    return Window(size, usable, int(usable * share), overhead)


class Compactor:
    """Watches the window during one run, or serves one `compact`.

    Args:
        view: Returns how the model that answers now sees the session.
        settings: ``[context]``.
        model_settings: ``[model]``.
        emit: Into the session.
        keep: Keeps a whole output (call id, text) and returns its reference; ``None``: outputs are not kept.
        writer: Returns the model that writes the notes for one that answers.
        set_state: Records the agent's state.
        spent: Told tokens and US dollars of each request that was made for notes.
        remaining_s: Seconds until the run's deadline.
        on_new_prefix: Called when the beginning of the conversation is another one.
    """

    def __init__(
        self,
        view: Callable[[], SessionView],
        settings: ContextConfig,
        model_settings: ModelConfig,
        emit: Emit,
        *,
        keep: Callable[[str, str], str] | None = None,
        writer: Callable[[ActiveModel], ActiveModel] = lambda active: active,
        set_state: Callable[[AgentState], object] = lambda state: None,
        spent: Callable[[Usage, float | None], object] = lambda usage, cost: None,
        remaining_s: Callable[[], float | None] = lambda: None,
        on_new_prefix: Callable[[], object] = lambda: None,
    ) -> None:
        self._view = view
        self._settings = settings
        self._model_settings = model_settings
        self._emit = emit
        self._keep = keep
        self._writer = writer
        self._set_state = set_state
        self._spent = spent
        self._remaining_s = remaining_s
        self._on_new_prefix = on_new_prefix
        self.idle_state = AgentState.RUNNING
        """The state after a compaction: that of the run, or ``idle`` where none is under way."""
        self._window: tuple[SessionView, Window] | None = None
        self._ratio = 1.0
        self._asked = 0
        self._steps: int | None = None
        self._fruitless = 0
        self._ceiling: int | None = None

    # --- what there is -------------------------------------------------------------------------------

    def window(self) -> Window:
        """Return what fits into the window of the model that answers now."""
        view = self._view()
        if self._window is None or self._window[0] is not view:
            found = window_of(view, self._settings.compact_at)
            if self._ceiling is not None:
                found = replace(found, limit=min(found.limit, int(self._ceiling * _BELOW_CEILING)))
            self._window = (view, found)
        return self._window[1]

    def tokens(self) -> int:
        """Return about how many tokens the next request is."""
        return int(self._estimate() * self._ratio)

    def _estimate(self) -> int:
        view = self._view()
        return self.window().overhead + session_tokens(view.session, view.agent_id).total

    def learn(self, usage: Usage) -> None:
        """Take what the server counted for the last request: estimates are corrected by it."""
        if self._steps is not None:
            self._steps += 1
        if usage.estimated or not self._asked:
            return
        ratio = usage.prompt / self._asked
        low, high = _TRUSTED_RATIO
        # Servers that tell nonsense must neither hide a full window nor feign one.
        self._ratio = ratio if low <= ratio <= high else 1.0

    # --- when ----------------------------------------------------------------------------------------

    async def before_request(self) -> None:
        """Compact where the next request is over the threshold.

        Raises:
            ProviderError: ``context_overflow``: two compactions in a row made no progress.
        """
        window = self.window()
        tokens = self.tokens()
        if tokens >= window.limit and (window.overhead < window.limit or tokens >= window.usable):
            done = await self.compact("auto")
            self._judge(done, window)
        self._asked = self._estimate()

    async def after_overflow(self, error: ProviderError) -> None:
        """Compact because the server said that the request is too long; return when it may be sent again.

        Raises:
            ProviderError: Nothing could be made shorter; the error, with advice.
        """
        # The window is smaller than was known, or the estimate too low: from now on room is made earlier.
        self._ceiling = min(self._ceiling or self.tokens(), self.tokens())
        self._window = None
        done = await self.compact("overflow")
        if done is None or done.tokens_after >= done.tokens_before:
            raise too_long(error)
        self._judge(done, self.window())
        self._asked = self._estimate()

    def _judge(self, done: Compaction | None, window: Window) -> None:
        if done is None:
            # Nothing can be left out; it may fit all the same.
            self._fruitless += self.tokens() >= window.usable
        else:
            soon = self._steps is not None and self._steps < _FEW_STEPS
            self._fruitless = self._fruitless + 1 if soon or done.tokens_after >= window.limit else 0
            self._steps = 0
        if self._fruitless >= _MOST_FRUITLESS:
            name = self._view().active.name
            message = THRASHING.format(model=name, tokens=self.tokens(), window=window.size)
            raise ProviderError(ErrorKind.CONTEXT_OVERFLOW, message, final=True)

    # --- how -----------------------------------------------------------------------------------------

    async def compact(self, trigger: str, focus: str = "") -> Compaction | None:
        """Make the conversation shorter; return the stored event, or ``None`` where nothing can go.

        Args:
            trigger: ``auto``, ``overflow`` or ``manual``.
            focus: What the user wants kept above all.
        """
        from aar.core.compaction.facts import gather

        self._set_state(AgentState.COMPACTING)
        try:
            view = self._view()
            gathered = await asyncio.to_thread(gather, view.session.events(), view.agent_id)
            turns = await asyncio.to_thread(gathered.fold.outline)
            event = await self._shorter(gathered, turns, trigger, focus)
            if event is None:
                return None
            stored = self._emit.append(event)[0]
            self._on_new_prefix()
            return stored if isinstance(stored, Compaction) else event
        finally:
            self._set_state(self.idle_state)

    async def _shorter(
        self, gathered: Gathered, turns: list[TurnOutline], trigger: str, focus: str
    ) -> Compaction | None:
        from aar.core.compaction.plan import choose_cut, shrink_old, shrink_tail

        window, tokens = self.window(), self.tokens()
        room = window.room
        said = tokens - window.overhead
        if trigger == "manual" and said < _WORTH_ASKING:
            return None
        if trigger != "auto":
            room = max(_LEAST_ROOM, min(room, int(said * _AFTER_OVERFLOW)))
        room = int(room / self._ratio)
        cut = choose_cut(turns, min(int(room * _KEEP), _MOST_KEPT))
        target = window.overhead + int(room * _TARGET)
        old = shrink_old(turns[: cut.kept], gathered.facts.references) if trigger == "auto" else []
        if old:
            shrunk = tuple(item.made(None) for item in old)
            trial = await asyncio.to_thread(self._told, gathered, tokens, Compaction(shrunk=shrunk))
            if trial.tokens_after <= int(target * self._ratio):
                return await self._event(gathered, tokens, trigger, old)
        tail = shrink_tail(turns[cut.kept :], gathered.facts.references, int(room * _KEEP))
        if not cut.worthwhile:
            return await self._event(gathered, tokens, trigger, tail) if tail else None
        return await self._summarised(gathered, cut, tail, trigger, focus, room)

    async def _summarised(
        self, gathered: Gathered, cut: Cut, tail: list[Shrink], trigger: str, focus: str, room: int
    ) -> Compaction | None:
        from aar.core.compaction.render import render_summary

        facts, tokens = gathered.facts, self.tokens()
        budget = min(int(room * _SUMMARY), _MOST_SUMMARY)
        notes = await self._notes(gathered, cut, focus, budget)
        pinned = _latest_request(facts.words, cut.first_kept_seq)
        said_below = frozenset({*pinned, *(w.seq for w in facts.words if w.seq >= cut.first_kept_seq)})
        facts.sayings = [item for item in facts.sayings if item[0] < cut.first_kept_seq]
        event = None
        for share in (1.0, 0.5, 0.25):
            summary = render_summary(
                facts,
                facts.notes if notes is None else notes,
                int(budget * share),
                said_below=said_below,
                sayings=notes is None,
            )
            base = Compaction(
                summary=summary,
                first_kept_seq=cut.first_kept_seq,
                kept_seqs=pinned,
                notes=facts.notes if notes is None else notes,
            )
            event = await self._event(gathered, tokens, trigger, tail, base)
            if event.tokens_after < tokens:
                return event
        return None

    async def _notes(self, gathered: Gathered, cut: Cut, focus: str, budget: int) -> Notes | None:
        """Return the model's notes; ``None``: it has none to give, and the facts alone must do."""
        from aar.core.compaction.render import transcript
        from aar.core.compaction.writer import NotesWriter

        view = self._view()
        writer = NotesWriter(
            self._writer(view.active),
            self._model_settings,
            self._emit,
            spent=self._spent,
            remaining_s=self._remaining_s,
        )
        turns = await asyncio.to_thread(transcript, cut.dropped)
        try:
            notes = await writer.write(turns, gathered.facts.notes, focus, max(300, min(budget // 2, 4000)))
            why = "it gave no notes"
        except ProviderError as error:
            notes, why = None, str(error)
        if notes is None:
            message = (
                f"The model could not sum up the conversation ({why.rstrip('.')}); the oldest turns were "
                "replaced by what the session itself tells: your words, files, commands, failing tests."
            )
            self._emit.append(Notice(level="warning", message=message, code="compaction_fallback"))
        return notes

    async def _event(
        self,
        gathered: Gathered,
        tokens_before: int,
        trigger: str,
        shrinks: list[Shrink],
        base: Compaction | None = None,
    ) -> Compaction:
        """Return the event with its outputs kept, and with the tokens that it leads to."""
        can_read = any(tool.name == "read_output" for tool in self._view().tools)
        keep = self._keep if can_read else None
        shrunk = await asyncio.to_thread(lambda: tuple(shrink.made(keep) for shrink in shrinks))
        event = (base or Compaction()).model_copy(update={"shrunk": shrunk, "trigger": trigger})
        return await asyncio.to_thread(self._told, gathered, tokens_before, event)

    def _told(self, gathered: Gathered, tokens_before: int, event: Compaction) -> Compaction:
        """Return ``event`` with the tokens that it leads to."""
        fold = gathered.fold.with_compaction(event.model_copy(update={"seq": gathered.last_seq + 1}))
        after = self.window().overhead + sum(message_tokens(message).total for message in fold.messages())
        return event.model_copy(
            update={"tokens_before": tokens_before, "tokens_after": int(after * self._ratio)}
        )


def too_long(error: ProviderError) -> ProviderError:
    """Return ``error`` with advice, for when compacting did not help."""
    message = TOO_LONG.format(said=str(error).removesuffix(" Compact it first."))
    return ProviderError(
        ErrorKind.CONTEXT_OVERFLOW,
        message,
        status=error.status,
        request_id=error.request_id,
        detail=error.detail,
    )


def _latest_request(words: list[Words], first_kept_seq: int) -> tuple[int, ...]:
    """Return the seqs of the last prompt and of what was said to its run, as far as they would be lost."""
    begin = next((item.seq for item in reversed(words) if item.source != "steer"), 0)
    return tuple(item.seq for item in words if begin <= item.seq < first_kept_seq)
