"""Tool calls in plain text: which texts are calls, and which are only about them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.providers.dialects.base import ParsedText, make_resolver
from aar.providers.dialects.text_calls import TextCallParser
from tests.dialects.support import ALIASES, TOOLS, plain, run

READ = ("read_file", {"path": "a.py"})
LIST = ("list_directory", {"path": "."})
BASH = ("bash", {"command": "pytest -q"})
RESOLVE = make_resolver(TOOLS, ALIASES.get)
J = '{"name": "read_file", "arguments": {"path": "a.py"}}'
L = '{"name": "list_directory", "arguments": {"path": "."}}'


def parse(text: str, *, strict: bool = False, **how: bool) -> ParsedText:
    return run(TextCallParser(RESOLVE, strict=strict), [text], **how)[1]


CALLS: list[tuple[str, str, str, list[tuple[str, dict[str, Any]]]]] = [
    ("json fence", f"```json\n{J}\n```", "", [READ]),
    ("bare fence", f"```\n{J}\n```", "", [READ]),
    ("tool_call fence", f"```tool_call\n{J}\n```", "", [READ]),
    ("tool_call fence with text after", f"```tool_call\n{J}\n```\nI wait.", "I wait.", [READ]),
    ("tilde fence", f"~~~json\n{J}\n~~~", "", [READ]),
    ("indented fence", f"  ```json\n  {J}\n  ```", "", [READ]),
    ("fence with prose before", f"I look at it.\n\n```json\n{J}\n```\n", "I look at it.", [READ]),
    ("unclosed fence", f"```json\n{J}\n", "", [READ]),
    ("fence closed without a line break", f"```json\n{J}\n```", "", [READ]),
    ("fence with CRLF", f"```json\r\n{J}\r\n```\r\n", "", [READ]),
    ("two fences", f"```json\n{J}\n```\n\n```json\n{L}\n```", "", [READ, LIST]),
    ("two objects in a fence", f"```json\n{J}\n{L}\n```", "", [READ, LIST]),
    ("pretty-printed", "```json\n" + json.dumps(json.loads(J), indent=2) + "\n```", "", [READ]),
    ("bare JSON", J, "", [READ]),
    ("bare JSON after prose", f"Reading.\n{J}", "Reading.", [READ]),
    ("bare JSON lines", f"{J}\n{L}\n", "", [READ, LIST]),
    ("bare list", f"[{J}, {L}]", "", [READ, LIST]),
    ("list in a fence", f"```json\n[{J}]\n```", "", [READ]),
    ("tool_calls object", f'{{"tool_calls": [{J}]}}', "", [READ]),
    ("tool and arguments", '{"tool": "read_file", "arguments": {"path": "a.py"}}', "", [READ]),
    ("tool and parameters", '{"tool": "read_file", "parameters": {"path": "a.py"}}', "", [READ]),
    ("tool and args", '{"tool": "read_file", "args": {"path": "a.py"}}', "", [READ]),
    ("tool and input", '{"tool": "read_file", "input": {"path": "a.py"}}', "", [READ]),
    ("tool_name and params", '{"tool_name": "read_file", "params": {"path": "a.py"}}', "", [READ]),
    ("action and action_input", '{"action": "read_file", "action_input": {"path": "a.py"}}', "", [READ]),
    ("function object", f'{{"function": {J}}}', "", [READ]),
    ("function object with id", f'{{"id": "1", "type": "function", "function": {J}}}', "", [READ]),
    ("function name", '{"function": "read_file", "arguments": {"path": "a.py"}}', "", [READ]),
    ("arguments as text", '{"name": "read_file", "arguments": "{\\"path\\": \\"a.py\\"}"}', "", [READ]),
    ("no arguments", '{"name": "list_directory", "arguments": {}}', "", [("list_directory", {})]),
    ("null arguments", '{"name": "list_directory", "arguments": null}', "", [("list_directory", {})]),
    ("only the tool", '{"tool": "list_directory"}', "", [("list_directory", {})]),
    ("alias", '{"name": "Read", "arguments": {"path": "a.py"}}', "", [READ]),
    ("functions prefix", '{"name": "functions.read_file", "arguments": {"path": "a.py"}}', "", [READ]),
    ("tool_call tag", f"<tool_call>\n{J}\n</tool_call>", "", [READ]),
    ("tag with prose on its line", f"I read.<tool_call>{J}</tool_call>", "I read.", [READ]),
    ("tag with prose after", f"<tool_call>{J}</tool_call>\nDone?", "Done?", [READ]),
    ("two tags", f"<tool_call>{J}</tool_call>\n<tool_call>{L}</tool_call>", "", [READ, LIST]),
    ("two calls in a tag", f"<tool_call>\n{J}\n{L}\n</tool_call>", "", [READ, LIST]),
    ("tag without its end", f"<tool_call>\n{J}", "", [READ]),
    ("tag without its end, text after", f"<tool_call>\n{J}\nI wait.", "I wait.", [READ]),
    ("tools tag", f"<tools>\n{J}\n</tools>", "", [READ]),
    ("tag in an xml fence", f"```xml\n<tool_call>\n{J}\n</tool_call>\n```", "", [READ]),
    ("function_call tag", f"<function_call>{J}</function_call>", "", [READ]),
    ("function with JSON", '<function=read_file>{"path": "a.py"}</function>', "", [READ]),
    (
        "function with parameters",
        "<function=read_file>\n<parameter=path>\na.py\n</parameter>\n</function>",
        "",
        [READ],
    ),
    (
        "function in a tag",
        "<tool_call>\n<function=bash>\n<parameter=command>\npytest -q\n</parameter>\n</function>\n</tool_call>",
        "",
        [BASH],
    ),
    ("invoke", '<invoke name="read_file"><parameter name="path">a.py</parameter></invoke>', "", [READ]),
    ("Mistral list", f"[TOOL_CALLS][{J}]", "", [READ]),
    ("Mistral name", '[TOOL_CALLS]read_file{"path": "a.py"}', "", [READ]),
    ("Mistral name with ARGS", 'Yes.[TOOL_CALLS]read_file[ARGS]{"path": "a.py"}', "Yes.", [READ]),
    ("ReAct", 'Thought: look\nAction: read_file\nAction Input: {"path": "a.py"}', "Thought: look", [READ]),
    ("ReAct in bold", '**Action:** read_file\n**Action Input:** {"path": "a.py"}', "", [READ]),
    ("ReAct input below", 'Action: read_file\nAction Input:\n{"path": "a.py"}\n', "", [READ]),
    ("ReAct, backticks", 'Action: `read_file`\nAction Input: `{"path": "a.py"}`', "", [READ]),
    (
        "ReAct with a dreamt answer",
        'Action: read_file\nAction Input: {"path": "a.py"}\nObservation: 1',
        "Observation: 1",
        [READ],
    ),
    ("single quotes", "{'name': 'read_file', 'arguments': {'path': 'a.py'}}", "", [READ]),
    ("trailing commas", '{"name": "read_file", "arguments": {"path": "a.py",},}', "", [READ]),
    ("missing brace", '{"name": "read_file", "arguments": {"path": "a.py"}', "", [READ]),
    ("one brace too many", J + "}", "", [READ]),
    ("brace too many in a tag", f"<tool_call>\n{J}}}\n</tool_call>", "", [READ]),
    (
        "line break in a string",
        '{"name": "write_file", "arguments": {"path": "a", "content": "x\ny\n"}}',
        "",
        [("write_file", {"path": "a", "content": "x\ny\n"})],
    ),
    (
        "fence in a string",
        '```json\n{"name": "write_file", "arguments": {"path": "a", "content": "x\n```\ny"}}\n```',
        "",
        [("write_file", {"path": "a", "content": "x\n```\ny"})],
    ),
    (
        "end tag in a string",
        '<tool_call>{"name": "bash", "arguments": {"command": "echo </tool_call>"}}</tool_call>',
        "",
        [("bash", {"command": "echo </tool_call>"})],
    ),
    (
        "unknown escape",
        r'{"name": "grep", "arguments": {"pattern": "\d+\.py"}}',
        "",
        [("grep", {"pattern": r"\d+\.py"})],
    ),
    (
        "Python constants",
        "{'name': 'edit_file', 'arguments': {'path': 'a', 'replace_all': True, 'x': None}}",
        "",
        [("edit_file", {"path": "a", "replace_all": True, "x": None})],
    ),
    (
        "braces in a string",
        '{"name": "bash", "arguments": {"command": "echo }}{\\"[" }}',
        "",
        [("bash", {"command": 'echo }}{"['})],
    ),
    (
        "double quote in single quotes",
        """{'name': 'bash', 'arguments': {'command': 'echo "hi"'}}""",
        "",
        [("bash", {"command": 'echo "hi"'})],
    ),
]


@pytest.mark.parametrize(("text", "prose", "calls"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_a_call_is_found_and_its_text_is_no_prose(
    text: str, prose: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    parsed = parse(text)
    assert (plain(parsed.calls), parsed.problem) == (calls, None)
    assert parsed.prose.strip() == prose
    assert all(call.call_id.startswith("call_") for call in parsed.calls)


PROSE = {
    "plain": "The function adds two numbers.",
    "empty": "",
    "code": "```python\nx = {'name': 'bash'}\n```\n",
    "config": '```json\n{"name": "my-app", "version": "1.0"}\n```',
    "config named like a tool": '```json\n{"name": "bash", "version": "1.0"}\n```',
    "bare config": '{"name": "bash", "scripts": {"test": "x"}}',
    "example in an explanation": f"A call looks like this:\n```json\n{J}\n```\nThe tool then answers.",
    "example at the end": f"You could write, for example:\n\n```json\n{J}\n```",
    "format of a call": f"The format is:\n{J}\n",
    "inside a file": f"docs.md\n````markdown\nText\n```json\n{J}\n```\n````\n",
    "inside a code block": f"```python\nCALL = (\n{J}\n)\n```",
    "inline code": f"Use `{J}` to read.",
    "tag in inline code": f"Models write `<tool_call>{J}</tool_call>`.",
    "tag inside a code block": f"```python\nx = '''\n<tool_call>{J}</tool_call>'''\n```",
    "tag as a word": "Hermes uses <tool_call> tags around a call.",
    "html": "```\n<tools>\n<b>x</b>\n```",
    "tool definition": '{"name": "bash", "parameters": {"type": "object", "properties": {}}}',
    "unknown name after prose": 'It prints this:\n{"name": "Bob", "arguments": {"a": 1}}',
    "JSON in a sentence": f"Then {J} is sent.",
    "JSON followed by words": f"{J} is what I would send.",
    "list of numbers": "[1, 2, 3]",
    "link": "[docs](https://example.org) are here",
    "check box": "[ ] to do\n[x] done",
    "footnote": "[1] A book",
    "set in braces": "{a, b} is a set",
    "code in braces": "{\n  int x;\n}\n",
    "action as a word": "Action: we should deploy.\nThen rest.",
    "action item": "Actions follow.",
    "finished ReAct": "Action: None\nAction Input: \nDone",
    "lists of others": '[{"name": "Ann"}, {"name": "Bob"}]',
    "mixed list": f'[{J}, {{"a": 1}}]',
    "open brace": '{"a": ',
    "open fence": '```json\n{"a": 1',
    "deep nesting": "[{" * 5_000,
    "NaN": '{"name": "read_file", "size": NaN}',
    "backticks": "``` is a fence, ` is not",
    "generic type": "Use list[<T>] and <function> here",
}


@pytest.mark.parametrize("text", PROSE.values(), ids=PROSE.keys())
def test_text_that_is_no_call_is_given_out_whole(text: str) -> None:
    shown, parsed = run(TextCallParser(RESOLVE), [text])
    assert (parsed.calls, parsed.problem, parsed.cut) == ((), None, False)
    assert parsed.prose == text == shown + parsed.rest


AMBIGUOUS = {
    "text after a fenced call": (f"```json\n{J}\n```\nThis reads the file.", "other text after it"),
    "text after a bare call": (f"{J}\nThis reads the file.", "other text after it"),
    "text between calls": (f"```json\n{J}\n```\nThen:\n```json\n{L}\n```", "other text after it"),
    "unescaped quotes": (
        '{"name": "bash", "arguments": {"command": "echo "hi""}}',
        "not valid JSON",
    ),
    "broken JSON in a tag": ("<tool_call>{name: read_file}</tool_call>", "not valid JSON"),
    "no name in a tag": ('<tool_call>{"path": "a.py"}</tool_call>', "not complete"),
    "unknown tool in a tag": (
        '<tool_call>{"name": "rm_rf", "arguments": {}}</tool_call>',
        "no tool named 'rm_rf'",
    ),
    "unknown tool alone": ('{"name": "open_file", "arguments": {"path": "a"}}', "no tool named 'open_file'"),
    "arguments are a list": ('{"name": "bash", "arguments": ["ls"]}', "must be a JSON object"),
    "arguments are a word": ('{"name": "bash", "arguments": "ls -l"}', "must be a JSON object"),
    "ReAct with a word": ("Action: bash\nAction Input: ls -l", "one JSON object"),
    "ReAct with an unknown tool": ('Action: fly\nAction Input: {"to": "x"}', "no tool named 'fly'"),
    "flat arguments in a tag": (
        '<tool_call>{"name": "read_file", "path": "a.py"}</tool_call>',
        'under "arguments"',
    ),
    "ends inside a string": ('<tool_call>{"name": "bash", "arguments": {"command": "ls', "not valid JSON"),
}


@pytest.mark.parametrize(("text", "says"), AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_an_unclear_call_is_not_run_but_asked_about(text: str, says: str) -> None:
    shown, parsed = run(TextCallParser(RESOLVE), [text])
    assert parsed.calls == ()
    assert parsed.problem is not None
    assert says in parsed.problem
    assert parsed.prose == text == shown + parsed.rest


def test_a_call_cut_by_the_length_limit_is_never_run() -> None:
    text = '<tool_call>{"name": "read_file", "arguments": {"path": "a.py"}'
    assert plain(parse(text).calls) == [READ]
    parsed = parse(text, cut=True)
    assert (parsed.calls, parsed.cut) == ((), True)
    assert "length limit" in (parsed.problem or "")


def test_prose_before_a_call_is_shown_while_it_arrives_and_the_call_is_not() -> None:
    parser = TextCallParser(RESOLVE)
    assert parser.feed("I look") == "I look"
    assert parser.feed(" at it.\n\n<tool") == " at it."
    assert parser.feed(f"_call>{J}") == ""
    parsed = parser.finish()
    assert (parsed.prose, parsed.rest, plain(parsed.calls)) == ("I look at it.", "", [READ])


def test_held_text_is_shown_as_soon_as_it_is_known_to_be_no_call() -> None:
    parser = TextCallParser(RESOLVE)
    assert parser.feed('```json\n{"a": 1}\n') == ""
    assert parser.feed("```\nIt is one") == '```json\n{"a": 1}\n```\nIt is one'


STRICT_CALLS = {
    "alone": J,
    "fenced": f"```json\n{J}\n```",
    "tag": f"<tool_call>{J}</tool_call>",
    "short prose before": f"I read it first.\n{J}",
}
STRICT_PROSE = {
    "text after a tag": f"<tool_call>{J}</tool_call> is how.",
    "text after JSON": f"{J}\nDone.",
    "long prose before": "word " * 100 + f"\n{J}",
    "code before": f"```sh\nls\n```\n{J}",
    "unknown tool": '{"name": "Bob", "arguments": {}}\n',
    "broken": '{"name": "bash", "arguments": {"command": "echo "hi""}}',
}


@pytest.mark.parametrize("text", STRICT_CALLS.values(), ids=STRICT_CALLS.keys())
def test_the_safety_net_takes_an_answer_that_is_nothing_but_a_call(text: str) -> None:
    assert plain(parse(text, strict=True).calls) == [READ]


@pytest.mark.parametrize("text", list(STRICT_PROSE.values())[:4], ids=list(STRICT_PROSE)[:4])
def test_the_safety_net_leaves_everything_else_alone(text: str) -> None:
    parsed = parse(text, strict=True)
    assert (parsed.calls, parsed.problem, parsed.prose) == ((), None, text)


@pytest.mark.parametrize("text", list(STRICT_PROSE.values())[4:], ids=list(STRICT_PROSE)[4:])
def test_the_safety_net_does_not_ask_about_mere_likeness(text: str) -> None:
    parsed = parse(text, strict=True)
    assert (parsed.calls, parsed.problem, parsed.prose) == ((), None, text)


def test_beside_native_calls_all_text_is_prose() -> None:
    parsed = parse(f"Look:\n{J}", native_calls=True)
    assert (parsed.calls, parsed.prose) == ((), f"Look:\n{J}")


_NAMES = st.sampled_from([*TOOLS, "Read", "nothing", "my-app"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_PARTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["```", "```json\n", "\n", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "Action: bash\n", "`", "{",
         "}", "[", '"', "'", "\\", "Action Input: ", "<function=bash>", "<parameter=command>", "</parameter>",
         "</function>", "~~~", "for example", " ", "\r\n", J, L, f"```json\n{J}\n```\n"]
    ),
    st.builds(lambda n, v: json.dumps({"name": n, "arguments": v}), _NAMES, _VALUES),
)  # fmt: skip
_ANSWERS = st.lists(_PARTS, max_size=12).map("".join)


@settings(max_examples=80, deadline=None)
@given(_ANSWERS, st.lists(st.integers(1, 9), min_size=1, max_size=6), st.booleans())
def test_the_result_does_not_depend_on_the_pieces(text: str, sizes: list[int], strict: bool) -> None:
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    shown_whole, whole = run(TextCallParser(RESOLVE, strict=strict), [text])
    shown, parsed = run(TextCallParser(RESOLVE, strict=strict), pieces)
    assert (plain(parsed.calls), parsed.prose, parsed.problem) == (
        plain(whole.calls),
        whole.prose,
        whole.problem,
    )
    assert shown + parsed.rest == parsed.prose == shown_whole + whole.rest


@settings(max_examples=60, deadline=None)
@given(_ANSWERS)
def test_text_is_never_lost(text: str) -> None:
    shown, parsed = run(TextCallParser(RESOLVE), list(text))
    assert shown + parsed.rest == parsed.prose
    if not parsed.calls:
        assert parsed.prose == text
        return
    rest = iter("".join(text.split()))
    assert all(char in rest for char in "".join(parsed.prose.split())), "prose is the text without the calls"


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=40), _VALUES.map(json.dumps), st.text(max_size=40))
def test_random_json_in_prose_is_no_call(before: str, value: str, after: str) -> None:
    text = f"{before}\n{value}\n{after}"
    assert parse(text).calls == ()


@settings(max_examples=50, deadline=None)
@given(_NAMES.filter(lambda name: name in TOOLS), st.dictionaries(st.text(max_size=8), _VALUES, max_size=4))
def test_every_call_written_as_json_comes_back_the_same(name: str, arguments: dict[str, Any]) -> None:
    if arguments.get("type") == "object":
        return
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    for text in (body, f"```json\n{body}\n```", f"<tool_call>\n{body}\n</tool_call>"):
        assert plain(parse(text).calls) == [(name, arguments)]


def test_a_long_call_in_small_pieces_takes_linear_time() -> None:
    content = "if (x) { y[0] = '}' }\n" * 4_000
    text = json.dumps({"name": "write_file", "arguments": {"path": "a", "content": content}})
    started = time.process_time()
    _, parsed = run(TextCallParser(RESOLVE), [text[i : i + 4] for i in range(0, len(text), 4)])
    assert plain(parsed.calls) == [("write_file", {"path": "a", "content": content})]
    assert time.process_time() - started < 20
