"""What opens the screens, and what is done with what the user takes there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from textual import work
from textual.content import Content

from aar.protocol.errors import AarError, ConfigurationError
from aar.transports.tui.chrome import Chrome
from aar.transports.tui.keys import KeyAction, flat, keymap, shown_keys
from aar.transports.tui.layout import look_of
from aar.transports.tui.one_line import one_line
from aar.transports.tui.theme_loader import theme_names

if TYPE_CHECKING:
    from aar.core.file_diffs import FileDiff
    from aar.runtime.base import Base
    from aar.runtime.conversation import Conversation

_SHOWN: dict[object, str] = {True: "shown", False: "hidden", "auto": "shown on wide terminals"}
_LAYOUT_PARTS = ("header", "activity", "footer", "panel")


class ScreenActions(Chrome):
    """The part of the app that opens screens.

    Attributes:
        options: With which the runtime was opened.
    """

    options: dict[str, Any]
    _settings: Base | None = None
    """As they are in the files, once one was changed here."""

    @property
    def conversation(self) -> Conversation | None:
        """The open session."""
        return None if self.connection is None else self.connection.conversation

    def _failed(self, error: Exception) -> None:
        """Tell it where it stays to be read; over a screen that hides that place, for a moment."""
        if len(self.screen_stack) == 1 and self.connection is not None:
            self.tell(one_line(str(error)), "error")
        else:
            self.notify(str(error), severity="error", markup=False)

    def _not_yet(self) -> None:
        self.notify("aar is still opening the session.", markup=False)

    # --- keys, log ---------------------------------------------------------------------------------------

    def action_show_keys(self) -> None:
        """Show all keys."""
        from aar.transports.tui.screens.text_view import TextView

        actions = self.key_actions()
        chosen, _ = keymap(flat(self.look.keys), actions)
        lines: list[Content] = []
        place = ""
        from aar.transports.tui.keys import PLACES

        for action in actions:
            if action.place != place:
                place = action.place
                title = Content.styled(PLACES.get(place, place), "bold $primary")
                lines += [Content(""), title] if lines else [title]
            keys = shown_keys(chosen.get(action.name, action.keys))
            lines += key_lines(keys, action, self.size.width - 4)
        self.push_screen(TextView("Keys", Content("\n").join(lines)))

    @work(exclusive=True, group="screen")
    async def action_show_log(self) -> None:
        """Show the end of the diagnostics log."""
        from aar.transports.tui.screens.text_view import TextView

        if self.conversation is None:
            self._not_yet()
            return
        from aar.transports.tui.screen_data import log_text

        text = await asyncio.to_thread(log_text, self.conversation.runtime.base)
        self.push_screen(TextView("Diagnostics log", text, at_end=True))

    # --- sessions ----------------------------------------------------------------------------------------

    @work(exclusive=True, group="screen")
    async def action_show_sessions(self) -> None:
        """Go on with another session, or with a copy of one; rename and delete sessions."""
        from aar.transports.tui.screens.sessions import SessionPicker, SessionsDoor

        conversation = self.conversation
        if conversation is None:
            self._not_yet()
            return
        from aar.transports.tui.screen_data import SessionFinder, session_rows

        runtime = conversation.runtime
        finder = SessionFinder(runtime)

        async def preview(key: str) -> Content:
            return await asyncio.to_thread(finder.preview, key)

        rows = await asyncio.to_thread(session_rows, runtime, conversation.session.session_id)
        door = SessionsDoor(preview, finder.rows, conversation.rename, conversation.delete)
        picker = SessionPicker(rows, door)
        taken = await self.push_screen_wait(picker)
        if taken is None:
            return
        try:
            await conversation.resume(taken.key)
            if taken.alternative:
                await conversation.fork()
        except AarError as error:
            self._failed(error)

    # --- model and mode ----------------------------------------------------------------------------------

    @work(exclusive=True, group="screen")
    async def action_show_models(self) -> None:
        """Choose the model, and how much it thinks."""
        from aar.transports.tui.screens.picker import Picker

        conversation = self.conversation
        if conversation is None:
            self._not_yet()
            return
        from aar.transports.tui.screen_data import level_rows, model_rows

        base, active = conversation.runtime.base, conversation.runtime.active
        current = active.name
        rows = await asyncio.to_thread(model_rows, base, active)
        hint = "Enter takes the model, Ctrl+O asks how much it shall think too."
        taken = await self.push_screen_wait(Picker("Model", rows, hint=hint, alternative=True))
        if taken is None:
            return
        try:
            if taken.key != current:
                conversation.set_model(taken.key)
            levels = level_rows(taken.key, conversation.runtime.reasoning)
            if taken.alternative and levels:
                level = await self.push_screen_wait(Picker("How much shall it think?", levels))
                if level is not None:
                    conversation.set_reasoning(level.key or None)
        except AarError as error:
            self._failed(error)
        self.refresh_facts()

    def action_cycle_mode(self) -> None:
        """Take the next permission mode; ``unsafe`` is left out."""
        conversation = self.conversation
        if conversation is None:
            return
        from aar.config.schema import PermissionMode

        modes = [mode for mode in get_args(PermissionMode) if mode != "unsafe"]
        place = modes.index(conversation.mode) if conversation.mode in modes else -1
        for step in range(1, len(modes) + 1):
            try:
                conversation.set_mode(modes[(place + step) % len(modes)])
            except AarError:
                # Mode auto needs a wall that may not be here.
                continue
            break
        self.refresh_facts()

    def refresh_facts(self) -> None:
        """Show model, mode and place as they are now."""
        if self.connection is not None:
            self.connection.refresh_facts()
            self.show_surroundings(self.connection.presenter)

    # --- changes -----------------------------------------------------------------------------------------

    def action_show_changes(self) -> None:
        """Look through all changes of the session."""
        conversation = self.conversation
        if conversation is None:
            self._not_yet()
            return
        from aar.transports.tui.screens.diff_view import DiffDoor, DiffView

        async def load() -> Sequence[FileDiff]:
            from aar.runtime.checkpoints import make_store
            from aar.runtime.undo import Undo

            # Looking does no harm while a run is under way.
            runtime = conversation.runtime
            return await Undo(make_store(runtime.base, runtime.spawner), conversation.session).changes_since()

        async def revert(diff: FileDiff, hunks: Sequence[int] | None) -> None:
            chosen = [hunk.index for hunk in diff.hunks] if hunks is None else hunks
            await conversation.undo.revert_hunks(diff.path, chosen, shown=diff)

        self.push_screen(DiffView(DiffDoor(load, revert, self.open_file)))

    @work(exclusive=True, group="editor")
    async def open_file(self, path: str, line: int) -> None:
        """Open a file of the workspace in the user's editor."""
        if self.conversation is None:
            return
        from aar.transports.tui.transcript.outside import open_link
        from aar.transports.tui.transcript.spans import Link

        runtime = self.conversation.runtime
        link = Link(path=path, line=line)
        try:
            told = await open_link(link, runtime.spawner, runtime.workspace, self.suspend)
        except (AarError, OSError) as error:
            told = str(error)
        if told:
            self.notify(told, markup=False)

    # --- settings ----------------------------------------------------------------------------------------

    @work(exclusive=True, group="screen")
    async def action_show_themes(self, name: str = "") -> None:
        """Choose colours; the marked theme is shown at once."""
        from aar.transports.tui.screens.picker import Picker, Row

        before = self.theme
        if not name:
            rows = [
                Row(theme, theme, mark=theme == (self.look.theme if self.look.theme == "auto" else before))
                for theme in theme_names(self.user_themes)
            ]
            hint = "Enter keeps it in your config file, Esc goes back."
            taken = await self.push_screen_wait(Picker("Theme", rows, hint=hint, moved=self._try_theme))
            name = taken.key if taken is not None else ""
        if not name:
            self.theme = before
            return
        try:
            self.use_theme(name)
            await self._keep("tui.theme", f'"{name}"')
        except AarError as error:
            self.theme = before
            self._failed(error)

    def _try_theme(self, name: str) -> None:
        try:
            self.use_theme(name)
        except AarError as error:
            self._failed(error)

    @work(exclusive=True, group="screen")
    async def action_show_settings(self) -> None:
        """Change settings in the user's config file."""
        from aar.transports.tui.screens.ask_text import AskText
        from aar.transports.tui.screens.picker import Picker

        query = at = ""
        while (conversation := self.conversation) is not None:
            from aar.transports.tui.screen_data import NOT_SET, setting_help, setting_rows

            base = self._settings or conversation.runtime.base
            rows = await asyncio.to_thread(setting_rows, base)
            told = {row.key: setting_help(row) for row in rows}

            async def preview(key: str, told: dict[str, str] = told) -> Content:
                return Content(told[key])

            hint = f"Kept in {base.paths.user_config}; those of tui act at once, others at the next start."
            picker = Picker("Settings", rows, hint=hint, preview=preview, query=query, at=at)
            taken = await self.push_screen_wait(picker)
            if taken is None:
                return
            query, at = picker.query_text, taken.key
            row = next(row for row in rows if row.key == at)
            value = text = "" if row.detail == NOT_SET else row.detail
            warning = ""
            while True:
                ask = AskText(at, told[at], text, warning=warning)
                text = await self.push_screen_wait(ask) or value
                if text == value:
                    break
                try:
                    await self._keep(at, text)
                    break
                except AarError as error:
                    warning = one_line(str(error))

    async def _keep(self, key: str, text: str) -> None:
        """Write a setting, and take it over where it is one of the screen."""
        if self.conversation is None:
            return
        from aar.transports.tui.screen_data import reread, write_setting

        doubt = await asyncio.to_thread(
            write_setting, self._settings or self.conversation.runtime.base, key, text
        )
        if doubt:
            self.notify(doubt, severity="warning", markup=False)
        self._settings = await asyncio.to_thread(reread, self.options)
        if key.startswith("tui."):
            self.apply_look(look_of(self._settings.config.tui))

    @work(exclusive=True, group="screen")
    async def action_show_layout(self, part: str = "") -> None:
        """Show or hide a part of the screen."""
        from aar.transports.tui.screens.picker import Picker, Row

        layout = self.look.layout
        if not part:
            rows = [
                Row(
                    name,
                    name,
                    _SHOWN.get(getattr(layout, name), str(getattr(layout, name))),
                )
                for name in _LAYOUT_PARTS
            ]
            taken = await self.push_screen_wait(
                Picker("Parts of the screen", rows, hint="Enter shows or hides.")
            )
            part = taken.key if taken is not None else ""
        if part not in _LAYOUT_PARTS:
            if part:
                known = ", ".join(_LAYOUT_PARTS)
                self._failed(ConfigurationError(f"There is no part {part!r}; there are {known}."))
            return
        now = getattr(layout, part)
        shown = layout.has_panel(self.size.width, self._panel_wanted) if part == "panel" else bool(now)
        self._panel_wanted = None
        try:
            await self._keep(f"tui.layout.{part}", "false" if shown else "true")
        except AarError as error:
            self._failed(error)


_KEYS_WIDTH = 26


def key_lines(keys: str, action: KeyAction, width: int) -> list[Content]:
    """Return the lines of one action: its keys, what they do, and its name where there is room."""
    from textwrap import wrap

    room = max(20, width - _KEYS_WIDTH - 3)
    told = wrap(action.help, room)
    if len(told) == 1 and len(action.help) + len(action.name) + 2 <= room:
        last = Content.styled(f"  {action.name}", "$text-disabled")
    else:
        last = Content("")
    heads = wrap(keys, _KEYS_WIDTH)
    lines: list[Content] = []
    for place in range(max(len(heads), len(told))):
        head = heads[place] if place < len(heads) else ""
        text = told[place] if place < len(told) else ""
        lines.append(
            Content.styled(f"  {head:<{_KEYS_WIDTH}} ", "$foreground") + Content.styled(text, "$text-muted")
        )
    return [lines[0] + last, *lines[1:]]
