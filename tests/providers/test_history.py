"""Images for models that read text only: a remark in their place, made once, told once."""

from __future__ import annotations

import pytest

from aar.config.schema import Config
from aar.protocol.messages import ImageBlock, Message, MessageBlock, TextBlock, ToolResultBlock
from aar.providers.catalog import lookup
from aar.providers.history import TextOnlyHistory

SHOT = ImageBlock(media_type="image/png", data="AAAA", name="shot.png")


def said(*content: MessageBlock) -> Message:
    return Message(role="user", content=content)


HISTORY = [
    said(TextBlock(text="look"), SHOT),
    Message(role="assistant", content=(TextBlock(text="at what?"),)),
    said(ToolResultBlock(call_id="a", name="read", output="one", images=(SHOT, SHOT)), TextBlock(text="so")),
]


def test_a_remark_stands_for_each_image_and_all_else_stays():
    history = TextOnlyHistory()
    first, second, third = history.fit(HISTORY)
    assert first.text.startswith("look[The image shot.png (image/png) is not shown")
    assert second is HISTORY[1]
    result = third.content[0]
    assert isinstance(result, ToolResultBlock)
    assert result.images == ()
    assert result.output.startswith("one\n[The image shot.png")
    assert result.output.count("is not shown") == 2
    assert third.content[1] == TextBlock(text="so")
    assert history.left_out == 3


def test_messages_keep_their_identity_while_a_conversation_grows_shrinks_and_changes():
    history = TextOnlyHistory()
    before = history.fit(HISTORY)
    grown = history.fit([*HISTORY, said(TextBlock(text="more"))])
    assert all(one is other for one, other in zip(before, grown, strict=False))
    shrunk = history.fit(HISTORY[2:])
    assert shrunk[0] is before[2]
    assert [message is old for message, old in zip(history.fit(HISTORY), before, strict=True)] == [True] * 3
    assert history.left_out == 3
    before.clear()
    assert len(history.fit(HISTORY)) == 3


@pytest.mark.parametrize(
    ("name", "images", "text_only"),
    [
        ("deepseek-chat", False, True),
        ("qwen3-coder:30b", False, True),
        ("gpt-oss:20b", False, True),
        ("llama-3.3-70b-versatile", False, True),
        ("some-model-of-mine", False, False),
        ("gpt-5", True, False),
        ("llama3.2-vision:11b", True, False),
    ],
)
def test_of_an_unknown_model_nobody_claims_that_it_is_blind(name: str, images: bool, text_only: bool):
    known = lookup("openai-compatible", name, Config())
    assert (known.images, known.text_only) == (images, text_only)


def test_the_config_decides_whether_a_model_sees():
    for value in (True, False):
        models = {"gpt-5": {"images": value}, "mine": {"images": value}}
        config = Config.model_validate({"providers": {"openai-compatible": {"models": models}}})
        for name in models:
            known = lookup("openai-compatible", name, config)
            assert (known.images, known.text_only) == (value, not value)
