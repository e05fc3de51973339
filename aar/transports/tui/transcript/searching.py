"""Search in the transcript: the line in which the words are typed, and the way from place to place."""

from __future__ import annotations

from textual import events

from aar.transports.tui.transcript.lines_view import TranscriptLines


class SearchableLines(TranscriptLines):
    """Lines that can be searched."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let no key act while words are typed, and none go to a place when nothing is looked for."""
        if self.finder.typing or (action == "found" and not self.finder.query):
            return False
        return super().check_action(action, parameters)

    def action_search(self) -> None:
        """Begin to search."""
        self._end_search(typing=True)

    def _end_search(self, *, typing: bool = False) -> None:
        self.finder.look("")
        self.finder.typing = typing
        self.refresh_bindings()
        self.settle()
        self.refresh()

    def action_found(self, step: int) -> None:
        """Go to the next place that was found, or the one before."""
        first = self.document.find(self.viewport.top)[0]
        if not len(self.document):
            return
        start = self.document.blocks[min(first, len(self.document) - 1)].key
        found = self.finder.step(step > 0, start)
        if found is not None:
            place, span = found
            self.cursor = self.document.blocks[place].key
            self.viewport.sticks = False
            self.viewport.show_block(place, span.line)
        self.settle()

    async def _on_key(self, event: events.Key) -> None:
        if not self.finder.typing:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self.finder.typing = False
            self.refresh_bindings()
            self.action_found(1) if self.finder.here is None else self.settle()
        elif event.key == "escape":
            self._end_search()
        elif event.key == "backspace":
            self._look(self.finder.query[:-1])
        elif event.key == "ctrl+u":
            self._look("")
        elif event.is_printable and event.character:
            self._look(self.finder.query + event.character)
        self.settle()

    def on_blur(self) -> None:
        """End the line of the search: keys go elsewhere."""
        if self.finder.typing:
            self.finder.typing = False
            self.refresh_bindings()
            self.settle()

    def on_paste(self, event: events.Paste) -> None:
        """Search for what is pasted."""
        if self.finder.typing:
            event.stop()
            self._look(self.finder.query + event.text.split("\n")[0][:200])

    def _look(self, query: str) -> None:
        self.finder.look(query)
        if query:
            self.action_found(1)
        self.refresh()
