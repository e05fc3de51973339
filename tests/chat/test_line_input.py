"""What is typed beside a question."""

from __future__ import annotations

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from aar.transports.chat.line_input import LineReader


@pytest.mark.parametrize(("typed", "kept"), [("\r", ""), ("\rnext", "next"), ("one\rtwo", "one\ntwo")])
async def test_enter_pressed_beside_a_question_begins_no_prompt(typed: str, kept: str) -> None:
    with create_pipe_input() as keys:
        reader = LineReader(terminal_input=keys, terminal_output=DummyOutput())
        keys.send_text(typed)
        await reader._put_aside()  # pyright: ignore[reportPrivateUsage] - what a question does first
        assert reader.draft == kept
