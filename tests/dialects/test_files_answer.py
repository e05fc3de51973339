"""Whole-file answers: the mistakes that small models make, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.protocol.messages import ToolUseBlock
from aar.providers.dialects.base import ParsedText
from aar.providers.dialects.files_answer import FilesAnswerParser
from aar.providers.dialects.files_text import render_call
from tests.dialects.support import plain, run

OLD = "def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n"
NEW = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
UTIL = "def helper():\n    return 1\n"
LONG = "".join(f"def f{i}():\n    return {i}\n\n\n" for i in range(30))
GUIDE = "# Guide\n\nText\n"


@dataclass
class Project:
    """Files in memory."""

    files: dict[str, str] = field(
        default_factory=lambda: {
            "calc.py": OLD,
            "tests/test_calc.py": TEST,
            "src/util.py": UTIL,
            "long.py": LONG,
            "docs/guide.md": GUIDE,
            "Makefile": "all:\n\ttrue\n",
            "my notes.txt": "x\n",
            "run.sh": "#!/bin/sh\necho hi\n",
        }
    )

    def known_paths(self) -> frozenset[str]:
        return frozenset(self.files)

    def content(self, path: str) -> str | None:
        return self.files.get(path)


def parse(text: str, **how: bool) -> ParsedText:
    return run(FilesAnswerParser(Project()), [text], **how)[1]


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return ("write_file", {"path": path, "content": content})


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return ("bash", {"command": command})


CALC = [write("calc.py", NEW)]
PY = f"```python\n{NEW}```"
HELLO = "print('hi')\n"
MD = "# Guide\n\n```python\nx = 1\n```\n\nEnd\n"
UTIL_2 = "def helper():\n    return 2\n"

ACCEPTED: list[tuple[str, str, list[tuple[str, dict[str, Any]]]]] = [
    ("as taught", f"calc.py\n{PY}", CALC),
    ("bare fence", f"calc.py\n```\n{NEW}```\n", CALC),
    ("tildes", f"calc.py\n~~~python\n{NEW}~~~\n", CALC),
    ("empty line between", f"calc.py\n\n{PY}", CALC),
    ("prose before", f"I fix it.\n\ncalc.py\n{PY}", CALC),
    ("prose after", f"calc.py\n{PY}\n\nNow it adds.", CALC),
    ("the example's folder", f"path/to/calc.py\n{PY}", CALC),
    ("the example's folder with a slash", f"/path/to/calc.py\n{PY}", CALC),
    ("the example's folder, nested", f"path/to/src/util.py\n```python\n{UTIL_2}```", [write("src/util.py", UTIL_2)]),
    ("the example's folder, new file", f"path/to/hello.py\n```python\n{HELLO}```", [write("hello.py", HELLO)]),
    ("the project's own folder name", f"myproject/calc.py\n{PY}", CALC),
    ("absolute", f"/home/me/work/calc.py\n{PY}", CALC),
    ("dot slash", f"./calc.py\n{PY}", CALC),
    ("folder left out", f"util.py\n```python\n{UTIL_2}```", [write("src/util.py", UTIL_2)]),
    ("backslashes", f"src\\util.py\n```python\n{UTIL_2}```", [write("src/util.py", UTIL_2)]),
    ("other case", f"Calc.py\n{PY}", CALC),
    ("backticks", f"`calc.py`\n{PY}", CALC),
    ("bold", f"**calc.py**\n{PY}", CALC),
    ("bold backticks", f"**`calc.py`**\n{PY}", CALC),
    ("colon", f"calc.py:\n{PY}", CALC),
    ("bold with colon", f"**calc.py:**\n{PY}", CALC),
    ("backticks with colon", f"`calc.py`:\n{PY}", CALC),
    ("heading", f"### calc.py\n{PY}", CALC),
    ("heading with backticks", f"## `calc.py`\n{PY}", CALC),
    ("numbered", f"1. calc.py\n{PY}", CALC),
    ("numbered bold", f"1. **calc.py**:\n{PY}", CALC),
    ("bullet", f"- `calc.py`\n{PY}", CALC),
    ("quotes", f'"calc.py"\n{PY}', CALC),
    ("File:", f"File: calc.py\n{PY}", CALC),
    ("bold File:", f"**File:** `calc.py`\n{PY}", CALC),
    ("file path:", f"File path: calc.py\n{PY}", CALC),
    ("updated", f"calc.py (updated)\n{PY}", CALC),
    ("heading, updated", f"### Updated file: calc.py\n{PY}", CALC),
    ("comment", f"```python\n# calc.py\n{NEW}```", CALC),
    ("slash comment", "```js\n// web/app.js\nlet x = 1;\n```", [write("web/app.js", "let x = 1;\n")]),
    ("comment with folder", f"```python\n# path/to/calc.py\n{NEW}```", CALC),
    ("comment in html", "```html\n<!-- index.html -->\n<p>\n```", [write("index.html", "<p>\n")]),
    ("path inside the block", f"```\ncalc.py\n{NEW}```", CALC),
    ("info", f"```python calc.py\n{NEW}```", CALC),
    ("info with colon", f"```python:calc.py\n{NEW}```", CALC),
    ("info alone", f"```calc.py\n{NEW}```", CALC),
    ("info with title", f'```python title="calc.py"\n{NEW}```', CALC),
    ("sentence", f"Here is the updated calc.py:\n{PY}", CALC),
    ("sentence with backticks", f"Here is the complete `calc.py` file:\n\n{PY}", CALC),
    ("sentence, new file", f"Create a new file `hello.py`:\n```python\n{HELLO}```", [write("hello.py", HELLO)]),
    ("no path, one possible file", f"Fixed:\n\n{PY}", CALC),
    ("missing final fence", f"calc.py\n```python\n{NEW}", CALC),
    ("missing final fence and newline", f"calc.py\n```python\n{NEW.rstrip()}", CALC),
    ("missing fence between", f"calc.py\n```python\n{NEW}\nsrc/util.py\n```python\n{UTIL_2}```", [
        write("calc.py", NEW + "\n"), write("src/util.py", UTIL_2)]),
    ("missing final fence, then RUN", f"calc.py\n```python\n{NEW}RUN: pytest", [*CALC, bash("pytest")]),
    ("unchanged file repeated", f"calc.py\n{PY}\n\ntests/test_calc.py\n```python\n{TEST}```", CALC),
    ("unchanged with CRLF", f"long.py\n```\n{LONG}```\ncalc.py\n{PY}".replace("\n", "\r\n").replace("\r\n", "\n"), CALC),
    ("original and fixed", f"calc.py\n```python\n{OLD}```\nbecomes\n\ncalc.py\n{PY}", CALC),
    ("sentence inside, first", f"calc.py\n```python\nHere is the fixed code:\n{NEW}```", CALC),
    ("sentence inside, last", f"calc.py\n```python\n{NEW}\nI changed the operator in add.\n```", CALC),
    ("explanation without a final fence", f"calc.py\n```python\n{NEW}\n\nThis changes the operator.", CALC),
    ("new file", f"pkg/hello.py\n```python\n{HELLO}```", [write("pkg/hello.py", HELLO)]),
    ("empty file", "pkg/__init__.py\n```python\n```", [write("pkg/__init__.py", "")]),
    ("file without extension", "Makefile\n```make\nall:\n\tfalse\n```", [write("Makefile", "all:\n\tfalse\n")]),
    ("hidden file", ".gitignore\n```\n*.pyc\n```", [write(".gitignore", "*.pyc\n")]),
    ("space in a known path", "my notes.txt\n```\ny\n```", [write("my notes.txt", "y\n")]),
    ("shell script", "run.sh\n```bash\n#!/bin/sh\necho ho\n```", [write("run.sh", "#!/bin/sh\necho ho\n")]),
    ("Markdown, longer fence", f"docs/guide.md\n````markdown\n{MD}````", [write("docs/guide.md", MD)]),
    ("Markdown, same fence", f"docs/guide.md\n```markdown\n{MD}```", [write("docs/guide.md", MD)]),
    ("Markdown, bare inner fence", f"docs/guide.md\n```markdown\n{MD}```".replace("```python", "```"), [
        write("docs/guide.md", MD.replace("```python", "```"))]),
    ("Markdown, then prose with a block", f"docs/guide.md\n```markdown\n{GUIDE}More\n```\n\nTry:\n```bash\nls\n```", [
        write("docs/guide.md", GUIDE + "More\n")]),
    ("fence in a docstring", 'a.py\n```python\n"""Doc.\n\n```\nx\n```\n"""\nx = 1\n```', [
        write("a.py", '"""Doc.\n\n```\nx\n```\n"""\nx = 1\n')]),
    ("Python's own dots", "p.py\n```python\ndef f(): ...\n\n\nclass A:\n    ...\n```", [
        write("p.py", "def f(): ...\n\n\nclass A:\n    ...\n")]),
    ("no final newline", "a.txt\n```\nx\n```\n\\ No newline at end of file", [write("a.txt", "x")]),
    ("outside of the project", "/etc/passwd\n```\nx\n```", [write("/etc/passwd", "x\n")]),
    ("upwards", "../x.py\n```\nx = 1\n```", [write("../x.py", "x = 1\n")]),
    ("same name, other file", f"docs/calc.py\n```python\n{HELLO}```", [write("docs/calc.py", HELLO)]),
    ("same name in a new folder", f"web/calc.py\n```python\n{HELLO}```", [write("web/calc.py", HELLO)]),
    ("RUN", "RUN: python -m pytest -q", [bash("python -m pytest -q")]),
    ("RUN after a file", f"calc.py\n{PY}\n\nRUN: pytest", [*CALC, bash("pytest")]),
    ("RUN before a file", f"RUN: pytest\ncalc.py\n{PY}", [bash("pytest"), *CALC]),
    ("RUN in bold", "**RUN:** pytest -q", [bash("pytest -q")]),
    ("RUN in backticks", "`RUN: pytest -q`", [bash("pytest -q")]),
    ("RUN with backticks", "RUN: `pytest -q`", [bash("pytest -q")]),
    ("RUN with a block", "RUN:\n```bash\ncd x\nls\n```", [bash("cd x\nls")]),
    ("RUN inside a block", "```bash\nRUN: pytest -q\n```", [bash("pytest -q")]),
    ("seen: rules echoed before RUN", "To run the tests, write one line such as:\nRUN: python -m pytest -q", [
        bash("python -m pytest -q")]),
    ("seen: the prompt's heading repeated", "Files of the project:\nhello.py\n```\nprint('hi')\n```", [
        write("hello.py", HELLO)]),
    ("seen: introduced, and files listed after it", "Here's the corrected code:\n\ncalc.py\n```\n" + NEW
        + "```\n\nFiles changed:\n- docs/greeting.txt\n- calc.py\n", CALC),
    ("two commands", "RUN: a\nRUN: b", [bash("a"), bash("b")]),
    ("READ", "READ: src/util.py", [("read_file", {"path": "src/util.py"})]),
    ("READ with the example's folder", "READ: path/to/util.py", [("read_file", {"path": "src/util.py"})]),
    ("READ of several", "READ: calc.py\nREAD: `long.py`", [
        ("read_file", {"path": "calc.py"}), ("read_file", {"path": "long.py"})]),
    ("search and replace", "calc.py\n```\n<<<<<<< SEARCH\nreturn a - b\n=======\nreturn a + b\n>>>>>>> REPLACE\n```", [
        ("edit_file", {"path": "calc.py", "old_text": "return a - b\n", "new_text": "return a + b\n"})]),
    ("search and replace, bare", "calc.py\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n", [
        ("edit_file", {"path": "calc.py", "old_text": "a\n", "new_text": "b\n"})]),
    ("search and replace, new file", "n.py\n```\n<<<<<<< SEARCH\n=======\nx = 1\n>>>>>>> REPLACE\n```", [
        write("n.py", "x = 1\n")]),
    ("diff", "```diff\n--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n```", [
        ("apply_patch", {"patch": "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"})]),
    ("diff without a header", "calc.py\n```diff\n@@ -1 +1 @@\n-a\n+b\n```", [
        ("apply_patch", {"patch": "--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a\n+b\n"})]),
    ("patch file", "fix.patch\n```diff\n-a\n```", [write("fix.patch", "-a\n")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "calls"), [one[1:] for one in ACCEPTED], ids=[one[0] for one in ACCEPTED])
def test_a_file_is_written_however_its_path_is_told(
    text: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    shown, parsed = run(FilesAnswerParser(Project()), list(text))
    assert (plain(parsed.calls), parsed.problem) == (calls, None)
    assert shown + parsed.rest == parsed.prose
    assert "```" not in parsed.prose or "Try:" in parsed.prose


PROSE = {
    "words": "No change is needed, `add` is right.",
    "empty": "",
    "bash that explains": "Run the tests with:\n```bash\npytest -q\n```\nThen commit.",
    "output": "It prints:\n```text\n3\n```\n",
    "long explanation with code": "word " * 120 + "\n```python\nprint(add(1, 2))\n```\n",
    "path without a block": "calc.py\n\nThis file is fine.",
    "RUN as a word": "RUN the tests, then READ the output.",
    "placeholder": "RUN: <command>\nREAD: path",
    "sentence without colon": "See calc.py\n\n" + "word " * 100 + "\n```python\nx()\n```\n",
    "use of a file": "word " * 100
    + "\nYou import it from `calc.py` like this:\n```python\nimport calc\n```\n",
    "the rules' own examples": "docs/greeting.txt\n```\nHello, world!\n```\nREAD: docs/guide.txt\n",
    "conflict marks in prose": "<<<<<<< is a mark\n",
    "open shell block": "```bash\nls",
}


@pytest.mark.parametrize("text", PROSE.values(), ids=PROSE.keys())
def test_an_explanation_changes_nothing_and_is_given_out_whole(text: str) -> None:
    shown, parsed = run(FilesAnswerParser(Project()), list(text))
    assert (parsed.calls, parsed.problem) == ((), None)
    assert parsed.prose == text == shown + parsed.rest


def test_the_rules_own_example_before_a_real_change_is_not_shown() -> None:
    text = "docs/greeting.txt\n```\nHello, world!\n```\n\ncalc.py\n```\n" + NEW + "```\n"
    shown, parsed = run(FilesAnswerParser(Project()), list(text))
    assert (parsed.prose.strip(), shown + parsed.rest) == ("", parsed.prose)
    assert [call.arguments["path"] for call in parsed.calls] == ["calc.py"]


ELIDED = {
    name: f"calc.py\n```python\ndef add(a, b):\n    return a + b\n{line}\n```"
    for name, line in {
        "dots": "...",
        "indented dots": "    ...",
        "comment dots": "# ...",
        "rest": "# rest of the code unchanged",
        "dots and rest": "# ... rest of the file ...",
        "existing": "# ... existing code ...",
        "existing code": "# existing code",
        "remains": "# the other functions remain unchanged",
        "other": "# other functions",
        "slashes": "// ... existing code ...",
        "same": "# same as before",
    }.items()
}
ASKED = {
    **{name: (text, "left out") for name, text in ELIDED.items()},
    "no path, nothing known": (f"Here:\n```python\n{HELLO}```", "no path"),
    "no path, several possible": ("```python\ndef f1():\n    return 2\n\ndef add(a, b):\n    pass\n```", "no path"),
    "no path, only a part": ("```python\ndef add(a, b):\n    return a + b\n```", "a part of calc.py"),
    "one block of two without path": (
        f"calc.py\n{PY}\nand the test\n```python\n{TEST}    assert add(0, 0) == 0\n```",
        "no path",
    ),
    "only unchanged": (f"calc.py\n```python\n{OLD}```", "nothing would change"),
    "most of a long file gone": ("long.py\n```python\ndef f0():\n    return 1\n```", "has 120 lines"),
    "seen: the rules' READ before a block": (f"READ: docs/guide.txt\n```\n{GUIDE}More\n```\n", "no path"),
    "broken diff": ("```diff\n- return a - b\n+ return a + b\n```", "patch"),
    "search without a path": ("```\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n```", "no path"),
    "empty search": ("calc.py\n```\n<<<<<<< SEARCH\n=======\nb\n>>>>>>> REPLACE\n```", "is empty"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), ASKED.values(), ids=ASKED.keys())
def test_an_unclear_answer_is_not_run_but_asked_about(text: str, says: str) -> None:
    shown, parsed = run(FilesAnswerParser(Project()), list(text))
    assert parsed.calls == ()
    assert says in (parsed.problem or "")
    assert parsed.prose == text == shown + parsed.rest


def test_a_file_cut_by_the_length_limit_is_not_written() -> None:
    parsed = parse(f"RUN: ls\ncalc.py\n```python\n{NEW}", cut=True)
    assert (parsed.calls, parsed.cut) == ((), True)
    assert "length limit inside calc.py" in (parsed.problem or "")
    assert plain(parse(f"calc.py\n{PY}\nand th", cut=True).calls) == CALC


def test_prose_is_shown_at_once_and_the_screen_is_told_which_file_comes() -> None:
    parser = FilesAnswerParser(Project())
    assert parser.feed("I change the operator of the function") == "I change the operator of the function"
    assert parser.feed(" add.\n\ncalc.py\n") == " add."
    assert parser.current_path is None
    assert parser.feed("```python\ndef add") == ""
    assert parser.current_path == "calc.py"
    assert parser.feed("(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n```\nDone.") == ""
    assert parser.current_path is None
    parsed = parser.finish()
    assert (parsed.prose, parsed.rest) == ("I change the operator of the function add.\n\nDone.", "\n\nDone.")


def test_a_comment_that_the_file_has_already_stays() -> None:
    project = Project({"calc.py": "# calc.py\nx = 1\n"})
    _, parsed = run(FilesAnswerParser(project), ["```python\n# calc.py\nx = 2\n```"])
    assert plain(parsed.calls) == [write("calc.py", "# calc.py\nx = 2\n")]


def test_dots_that_the_file_has_already_are_no_omission() -> None:
    project = Project({"a.js": "f(\n...\n)\n"})
    _, parsed = run(FilesAnswerParser(project), ["a.js\n```js\ng(\n...\n)\n```"])
    assert plain(parsed.calls) == [write("a.js", "g(\n...\n)\n")]


_LINES = st.sampled_from(
    ["", "x = 1", "```", "````", "```python", "~~~", "calc.py", "RUN: ls", "READ: a.py", "# a.py", "**b.md**",
     "text here.", "    indented", "\t```", "\r", "def f():", "\\ No newline at end of file", "File: x.py", "`"]
)  # fmt: skip
_CONTENT = st.one_of(
    st.text(max_size=60),
    st.lists(_LINES, max_size=8).map("\n".join),
    st.lists(_LINES, max_size=8).map("\r\n".join),
    st.lists(_LINES, max_size=8).map(lambda lines: "\n".join(lines) + "\n"),
)
_CALL = st.one_of(
    st.builds(
        write, st.sampled_from(["new.txt", "pkg/n.md", "my file.txt", ".hidden", "a-b/c.rst", "x.js"]), _CONTENT
    ),
    st.builds(bash, _CONTENT.filter(str.strip)),
    st.sampled_from(["a.py", "docs/x.md"]).map(lambda path: ("read_file", {"path": path})),
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(_CALL, max_size=4), st.integers(1, 9))
def test_every_call_that_was_rendered_is_parsed_back_the_same(
    calls: list[tuple[str, dict[str, Any]]], size: int
) -> None:
    blocks = [ToolUseBlock(call_id="c", name=name, arguments=arguments) for name, arguments in calls]
    text = "\n\n".join(["I do it.", *map(render_call, blocks)])
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    shown, parsed = run(FilesAnswerParser(Project({})), pieces)
    assert (plain(parsed.calls), parsed.problem) == (plain(blocks), None)
    assert (shown + parsed.rest, parsed.prose) == (parsed.prose, "I do it.")


_PARTS = st.lists(
    st.one_of(
        _LINES,
        st.sampled_from(
            ["calc.py", "`calc.py`:", "```bash", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "...", "RUN:",
             "Here is the updated calc.py:", "### Updated file path: calc.py (new file)", "```python calc.py",
             "def add(a, b):", "my notes.txt", "a sentence with more than six words in it", "```diff"]
        ),
        st.text(max_size=12),
    ),
    max_size=14,
).map("\n".join)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(_PARTS, st.lists(st.integers(1, 12), min_size=1, max_size=5), st.booleans())
def test_the_result_does_not_depend_on_the_pieces_and_nothing_is_lost(
    text: str, sizes: list[int], cut: bool
) -> None:
    pieces: list[str] = []
    at = 0
    while at < len(text):
        pieces.append(text[at : at + sizes[len(pieces) % len(sizes)]])
        at += len(pieces[-1])
    _, whole = run(FilesAnswerParser(Project()), [text], cut=cut)
    shown, parsed = run(FilesAnswerParser(Project()), pieces, cut=cut)
    assert (plain(parsed.calls), parsed.prose, parsed.problem) == (
        plain(whole.calls),
        whole.prose,
        whole.problem,
    )
    assert shown + parsed.rest == parsed.prose
    if not parsed.calls:
        assert parsed.prose == text
