"""Conversations and tools as plain text."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from aar.protocol.messages import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from aar.protocol.tool import ToolSpec
from aar.providers.dialects.files_answer import FilesAnswerParser
from aar.providers.text_tools import (
    FILES_RULES,
    MessageRenderer,
    NoFiles,
    TextCallParser,
    make_parser,
    make_resolver,
    render_messages,
    render_tools_prompt,
)
from tests.dialects.support import TOOLS, plain

CALL = ToolUseBlock(call_id="call_1", name="write_file", arguments={"path": "a.py", "content": "x = 1\n"})
ASKED = Message(role="user", content=(TextBlock(text="Do it"),))
ANSWER = Message(role="assistant", content=(TextBlock(text="I do."), CALL))
RESULT = Message(
    role="user", content=(ToolResultBlock(call_id="call_1", name="write_file", output="a.py written."),)
)


def spec(name: str, *required: str, **optional: dict[str, Any]) -> ToolSpec:
    properties = {**{one: {"type": "string"} for one in required}, **optional}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name, f"Does {name} in the workspace. And more words.", schema, frozenset(), None)


SIX = (
    spec("read_file", "path", start_line={"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    spec("write_file", "path", "content"),
    spec("edit_file", "path", "old_text", "new_text", replace_all={"type": "boolean"}),
    spec("list_directory", "path"),
    spec("grep", "pattern", "path", "glob"),
    spec("bash", "command", timeout_s={"type": "number"}),
)


def test_the_tools_prompt_is_short_and_names_every_tool_and_argument() -> None:
    text = render_tools_prompt(SIX)
    assert "- read_file(path, start_line? int): Does read_file in the workspace." in text
    assert "- edit_file(path, old_text, new_text, replace_all? bool):" in text
    assert "And more words" not in text
    assert len(text) / 3.5 <= 350, "about 350 tokens for six tools"
    assert render_tools_prompt(()) == ""


def test_the_example_of_the_tools_prompt_is_a_call_that_is_understood() -> None:
    text = render_tools_prompt(SIX)
    parser = TextCallParser(make_resolver(TOOLS))
    parser.feed(text[: text.index("</tool_call>") + 12])
    assert plain(parser.finish().calls) == [("read_file", {"path": "src/app.py"})]


def test_the_files_rules_are_short_and_their_examples_are_understood() -> None:
    assert len(FILES_RULES) / 3.8 <= 220, "about 220 tokens"
    parser = FilesAnswerParser(NoFiles())
    parser.feed(FILES_RULES.replace("docs/", "pages/"))
    assert plain(parser.finish().calls) == [
        ("write_file", {"path": "pages/greeting.txt", "content": "Hello, world!\n"}),
    ]


def test_calls_and_results_become_text_in_the_words_of_the_dialect() -> None:
    asked, answer, result = render_messages([ASKED, ANSWER, RESULT], "files")
    assert asked is ASKED
    assert answer.content == (TextBlock(text="I do.\n\na.py\n```python\nx = 1\n```"),)
    assert result.content == (TextBlock(text="a.py written."),)
    _, answer, result = render_messages([ASKED, ANSWER, RESULT], "text")
    assert answer.text == (
        'I do.\n\n<tool_call>\n{"name": "write_file", "arguments": {"path": "a.py", "content": "x = 1\\n"}}\n'
        "</tool_call>"
    )
    assert result.text == "<tool_response>\nwrite_file, result:\na.py written.\n</tool_response>"
    assert render_messages([ASKED, ANSWER], "native") == [ASKED, ANSWER]


def test_long_output_is_framed_by_a_fence_that_it_cannot_close() -> None:
    block = ToolResultBlock(call_id="1", name="bash", output="a\n```\nb\n")
    message = Message(role="user", content=(block,))
    assert render_messages([message], "files")[0].text == "Output of the command:\n````\na\n```\nb\n````"


def test_images_of_a_result_follow_its_text() -> None:
    image = ImageBlock(media_type="image/png", data="eA==")
    block = ToolResultBlock(call_id="1", name="read_file", output="An image.", images=(image,))
    message = Message(role="user", content=(block,))
    assert render_messages([message], "files")[0].content == (TextBlock(text="An image."), image)


def test_a_call_that_the_files_dialect_has_no_words_for_is_told_too() -> None:
    call = ToolUseBlock(call_id="1", name="grep", arguments={"pattern": "x"})
    message = Message(role="assistant", content=(call,))
    assert render_messages([message], "files")[0].text == '(grep {"pattern": "x"})'


def test_a_message_is_rendered_once_and_forgotten_with_its_source() -> None:
    renderer = MessageRenderer("text")
    message = Message(role="assistant", content=(CALL,))
    first = renderer.render([ASKED, message])
    assert renderer.render([ASKED, message, RESULT])[1] is first[1]
    assert len(renderer._done) == 2
    del message
    gc.collect()
    assert len(renderer._done) == 1


@pytest.mark.parametrize(("dialect", "calls"), [("native", 0), ("text", 1)])
def test_the_safety_net_of_native_is_stricter(dialect: Any, calls: int) -> None:
    parser = make_parser(dialect, make_resolver(TOOLS))
    parser.feed('<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>\nDone.')
    assert len(parser.finish().calls) == calls


def test_the_files_parser_works_without_a_project() -> None:
    parser = make_parser("files", make_resolver(TOOLS))
    parser.feed("a.py\n```\nx = 1\n```")
    assert plain(parser.finish().calls) == [("write_file", {"path": "a.py", "content": "x = 1\n"})]
