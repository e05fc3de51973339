"""Lines of the transcript: the map of heights, wrapping, Markdown, streams, diffs, links."""

from __future__ import annotations

import time
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from aar.orchestration import task_tools
from aar.tools.builtin import notes
from aar.tools.builtin.catalogue import builtin_tools
from aar.transports.tui.blocks import ThinkingBlock, ToolBlock
from aar.transports.tui.transcript.cards import render_tool
from aar.transports.tui.transcript.chunks import split_chunks
from aar.transports.tui.transcript.diff import changed_words, count_changes, parse_diff, render_diff
from aar.transports.tui.transcript.folds import Fold
from aar.transports.tui.transcript.highlight import highlight
from aar.transports.tui.transcript.line_map import LineMap
from aar.transports.tui.transcript.listing import listing
from aar.transports.tui.transcript.markdown import render_markdown
from aar.transports.tui.transcript.render import render_block
from aar.transports.tui.transcript.spans import Link, copy_lines, find_all, link_at, links_in
from aar.transports.tui.transcript.stream import MarkdownStream
from aar.transports.tui.transcript.text import clean, joined_text, plain_lines, shorten, wrap
from aar.transports.tui.transcript.thoughts import thought_lines

ODD = st.text(
    st.sampled_from("ab .\t日本語ｶ👍🏽é\u0301e\u0300\u202e\x1b\x00[](){}*_`#|~->\\\n:1❤\ufe0f🇩🇪،שׁ"),
    max_size=120,
)
MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# Head\n", "text **bold** `code`\n", "\n", "\n\n", "- item\n", "  - inner\n", "1. one\n", "2. two\n",
            "> quote\n", "```python\n", "x = 1\n", "```\n", "| a | b |\n", "|---|---|\n", "| 1 | 2 |\n", "---\n",
            "[a](http://b.c)\n", "[a][r]\n", "[r]: http://d.e\n", "日本語\n", "    indented\n", "***\n", "*", "~~~\n", "- [x] done\n",
        ]
    ),
    max_size=25,
).map("".join)  # fmt: skip


@given(st.lists(st.integers(0, 9), max_size=60), st.data())
def test_the_line_map_agrees_with_a_plain_list(heights: list[int], data: st.DataObject) -> None:
    tree = LineMap(heights[: len(heights) // 2])
    for height in heights[len(heights) // 2 :]:
        tree.append(height)
    for _ in range(5):
        if heights:
            place = data.draw(st.integers(0, len(heights) - 1))
            heights[place] = data.draw(st.integers(0, 9))
            tree.set(place, heights[place])
    cut = data.draw(st.integers(0, len(heights)))
    tree.truncate(cut)
    del heights[cut:]
    assert [tree.start(n) for n in range(cut + 1)] == [0, *accumulate(heights)]
    rows = [(place, row) for place, height in enumerate(heights) for row in range(height)]
    assert [tree.find(line) for line in range(tree.total)] == rows
    assert tree.find(tree.total)[0] == len(heights)


@given(ODD, st.integers(4, 40), st.booleans())
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int, code: bool) -> None:
    shown = clean(text)
    lines = plain_lines(shown, width, "", code=code)
    assert all(cell_len(line.text) <= width for line in lines)
    kept = joined_text(lines)
    if code:
        assert kept == shown
    else:
        # Only indentation beyond half of the width and spaces at the end of a row are given up.
        assert [row.strip() for row in kept.split("\n")] == [row.strip() for row in shown.split("\n")]


def test_words_stay_whole_and_wide_characters_break_anywhere_but_before_a_full_stop() -> None:
    assert [line.text for line in wrap([("one two three", "")], 8)] == ["one two", "three"]
    assert [line.text for line in wrap([("日本語です。", "")], 10)] == ["日本語で", "す。"]
    assert [line.text for line in wrap([("abcdefghij", "")], 4)] == ["abcd", "efgh", "ij"]


@given(st.text(alphabet="ab 日👍", max_size=30), st.integers(4, 30), st.booleans())
def test_an_emoji_made_of_several_is_drawn_as_one_and_never_torn(text: str, width: int, code: bool) -> None:
    family, fire = "👩🏽\u200d👩🏽\u200d👧\u200d👦", "❤️\u200d🔥"
    lines = wrap([(f"{text}{family}{text} {fire}{text}", "")], width, code=code)
    shown = [line.text for line in lines]
    assert sum(row.count(family) for row in shown) == sum(row.count(fire) for row in shown) == 1
    assert all(cell_len(row) <= width for row in shown)


def test_words_of_a_model_keep_such_emoji_and_code_shows_what_they_are_made_of() -> None:
    lines = render_markdown("a 👩\u200d👧 b `👩\u200d👧`\n\n```\n👩\u200d👧\n```\n", 60)
    assert [line.body for line in lines] == ["a 👩\u200d👧 b 👩\\u200d👧", "", "👩\\u200d👧"]


def test_a_wrapped_line_hangs_below_its_mark() -> None:
    lines = wrap([("aaa bbb", "")], 6, prefix=[("- ", "")], hang=[("  ", "")])
    assert [line.text for line in lines] == ["- aaa", "  bbb"]
    assert joined_text(lines) == "aaa bbb"


def test_shortened_text_says_that_it_is_cut() -> None:
    assert shorten("日本語", 5) == "日本…"
    assert shorten("abc", 3) == "abc"


def text_of(source: str, width: int = 60) -> list[str]:
    return [line.text.rstrip() for line in render_markdown(source, width)]


def test_markdown_of_every_kind_is_drawn() -> None:
    source = (
        "# Big\n\nA **b** *i* ~~s~~ `c` [l](http://x.y)\nnext\n\n- one\n  - two\n- [x] yes\n- [ ] no\n\n"
        "3. three\n4. four\n\n> quoted\n\n```py\nx = 1\n```\n\n---\n![pic](a.png)\n"
    )
    assert text_of(source) == [
        "Big", "", "A b i s c l (http://x.y)", "next", "", "• one", "  • two", "☑ yes", "☐ no", "",
        "3. three", "4. four", "", "│ quoted", "", " x = 1", "", "─" * 40, "", "[image: pic] (a.png)",
    ]  # fmt: skip


def test_tables_are_fitted_to_the_width() -> None:
    table = "| name | what it is |\n|:--|--:|\n| 日本 | a long text that must be wrapped |\n"
    wide, narrow = text_of(table, 60), text_of(table, 24)
    assert wide[0].startswith("name  ")
    assert len(wide) == 3
    assert all(cell_len(line) <= 24 for line in narrow)
    assert len(narrow) > 3
    many = "|" + "x|" * 12 + "\n|" + "-|" * 12 + "\n|" + "abcdefg|" * 12
    assert all(cell_len(line) <= 30 for line in text_of(many, 30))


def test_html_and_entities_are_text_and_never_controls() -> None:
    shown = "\n".join(text_of("<script>x</script> &#27;[31m &#x202e; &lt;b&gt; \x1b]52;c;aGk=\x07"))
    assert "<script>" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\x07" not in shown


def test_deep_nesting_and_endless_brackets_end_soon() -> None:
    for source in (
        ">" * 5_000 + "x",
        "[" * 20_000,
        "*a " * 8_000,
        "- " * 3_000 + "x",
        "`" * 9_999,
        "|" * 5_000,
    ):
        assert render_markdown(source, 40)


@example("# Head\n[a][r]\n# Head\n[r]: http://d.e\n# Head\n# Head\n", 41, 20)
@given(MARKDOWN, st.integers(1, 7), st.integers(20, 60))
@settings(max_examples=120, deadline=None)
def test_a_stream_ends_with_the_lines_of_the_whole_text(source: str, step: int, width: int) -> None:
    stream = MarkdownStream(width)
    for end in range(0, len(source), step):
        stream.update(source[:end], budget_s=9)
    assert stream.update(source, final=True, budget_s=9)
    assert [line.text for line in stream.lines] == [line.text for line in render_markdown(source, width)]


@given(ODD)
@settings(max_examples=150, deadline=None)
def test_markdown_of_anything_fits_and_holds_no_control(source: str) -> None:
    for line in render_markdown(source, 30):
        assert cell_len(line.text) <= 40
        assert not set(line.text) & set("\x1b\x00\u202e\t\n")


def test_text_that_markdown_would_hide_is_shown() -> None:
    assert text_of("[//]: # (a note)") == ["[//]: # (a note)"]
    assert "deep" in "".join(text_of(">" * 40 + " deep"))


def test_an_open_piece_is_drawn_again_but_not_what_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aar.transports.tui.transcript.stream._BUDGET_S", 60)
    stream = MarkdownStream(40)
    stream.update("para one\n\npara two\n\nopen\n", budget_s=9)
    kept = stream.lines[:3]
    stream.update("para one\n\npara two\n\nopen\nand more", budget_s=9)
    assert [a is b for a, b in zip(kept, stream.lines, strict=False)] == [True, True, True]
    assert [line.text for line in stream.lines[-2:]] == ["open", "and more"]


def test_a_long_table_goes_on_under_a_second_head() -> None:
    source = "| n |\n|---|\n" + "".join(f"| {n} |\n" for n in range(250))
    chunks = split_chunks(source)
    assert len(chunks) == 3
    assert [line.text.strip() for line in render_markdown(source, 40)].count("n") == 3


DIFF = """--- a/x.py
+++ b/x.py
@@ -1,3 +1,3 @@
 def f():
-    return one + 1
+    return two + 1
 # end
"""


def test_a_diff_marks_the_words_that_changed() -> None:
    lines = render_diff(DIFF, 60)
    assert [line.text for line in lines] == [
        "1   def f():", "2 −     return one + 1", "2 +     return two + 1", "3   # end", "4",
    ][: len(lines)]  # fmt: skip
    marked = [(text, role) for line in lines for text, role in line.runs if role.endswith(".word")]
    assert [text for text, _ in marked] == ["one", "two"]
    assert count_changes(DIFF) == (1, 1)


def test_a_removed_line_that_looks_like_a_head_is_a_line() -> None:
    diff = "--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,1 @@\n--- a comment\n keep\n"
    (item,) = parse_diff(diff)
    assert item.hunks[0].rows[0] == ("-", "-- a comment")


@given(ODD, ODD)
def test_marked_words_lie_within_their_lines(old: str, new: str) -> None:
    left, right = changed_words(old, new)
    assert all(0 <= start < end <= len(old) for start, end in left)
    assert all(0 <= start < end <= len(new) for start, end in right)


@given(
    st.lists(st.sampled_from(["@@ -1 +1 @@", "+a", "-b", " c", "--- x", "+++ y", "", "@@ -9,9 +9,9 @@ z"]))
)
def test_any_diff_is_drawn(rows: list[str]) -> None:
    assert all(cell_len(line.text) <= 30 for line in render_diff("\n".join(rows), 30))


def test_words_are_found_across_a_line_break() -> None:
    lines = plain_lines("one two three", 8, "", code=False)
    (spans,) = find_all(lines, "two three")
    assert [(span.line, span.start, span.end) for span in spans] == [(0, 4, 7), (1, 0, 5)]
    assert find_all(lines, "TWO") == []
    assert len(find_all(lines, "t")) == 2


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("see src/a.py:12 now", Link(path="src/a.py", line=12)),
        ("at ./b.toml.", Link(path="./b.toml")),
        ("go https://x.org/a?b=1.", Link(url="https://x.org/a?b=1")),
        ("E   tests/test_x.py:7: AssertionError", Link(path="tests/test_x.py", line=7)),
    ],
)
def test_links_are_seen_in_plain_text(text: str, link: Link) -> None:
    lines = plain_lines(text, 80, "")
    assert links_in(lines) == [link]
    place = text.index("/")
    assert link_at(lines, 0, place) == link
    assert link_at(lines, 0, 0) != link or place == 0


def test_the_words_of_a_link_lead_to_its_target() -> None:
    lines = render_markdown("read [the page](https://x.org/p) first", 80)
    assert link_at(lines, 0, lines[0].text.index("page")) == Link(url="https://x.org/p")


def test_copied_lines_have_no_decoration_and_no_breaks_of_the_screen() -> None:
    lines = render_markdown("- one two three four\n- five", 12)
    assert copy_lines(lines, (0, 0), (len(lines) - 1, 99)) == "one two three four\nfive"


@pytest.mark.parametrize("language", ["css", "js", "python", "bash", "html"])
def test_colours_never_change_the_text_and_never_take_long(language: str) -> None:
    code = "{[(<'\"\\/*# " * 4_500 + "\nlast\n"
    started = time.process_time()
    rows = highlight(code, language)
    assert time.process_time() - started < 15
    assert "\n".join("".join(text for text, _ in row) for row in rows) == code


def test_links_are_found_soon_in_endless_words() -> None:
    lines = render_markdown("a/" * 1_900 + "\n\n" + "a." * 1_900 + "\n\n" + "http://" * 500, 80)
    started = time.process_time()
    links_in(lines)
    assert time.process_time() - started < 10


def card(width: int = 60, fold: Fold = "full", **facts: Any) -> list[str]:
    return [line.text for line in render_tool(ToolBlock(1, **facts), width, fold)]


def test_numbers_beside_what_was_read_are_neither_coloured_nor_copied() -> None:
    text = "     9\t'''Doc\n    10\tof it'''\n    11\t\tx = 1  # a note that is wrapped\n(2 more lines)"
    lines = listing(text, "python", 24, 99)
    assert [line.text for line in lines] == [
        " 9  '''Doc", "10  of it'''", "11      x = 1  # a note ", "    that is wrapped", "(2 more lines)",
    ]  # fmt: skip
    assert joined_text(lines) == "'''Doc\nof it'''\n    x = 1  # a note that is wrapped\n(2 more lines)"
    assert lines[0].runs[0] == (" 9  ", "faint")
    assert lines[1].runs[1][1] == "output syn.string"
    assert card(name="read_file", arguments={"path": "a.py"}, status="done", output=text)[1] == "   9  '''Doc"


def test_a_card_says_each_thing_once() -> None:
    command = {"command": "cd src\n  make all\n"}
    ran = {
        "name": "bash",
        "arguments": command,
        "status": "done",
        "output": "boom\nexit code: 3",
        "exit_code": 3,
    }
    assert card(fold="peek", **ran) == ["✗ Ran cd src ↵ make all · exit 3", "  boom"]
    assert card(**ran)[-1] == "  boom"
    assert card(**{**ran, "output": "exit code: 3"})[-1] == "  (no output)"
    assert card(**{**ran, "exit_code": 4})[-1] == "  exit code: 3"


def test_a_card_does_not_claim_what_failed() -> None:
    failed = {"status": "failed", "category": "not_found", "output": "no such text"}
    assert card(fold="folded", name="edit_file", arguments={"path": "a"}, **failed) == [
        "✗ Editing a · not found"
    ]
    ran = card(fold="folded", name="bash", arguments={"command": "x"}, status="failed", exit_code=1)
    assert ran == ["✗ Ran x · exit 1"]


def test_of_an_error_the_beginning_is_shown_and_its_kind_only_once() -> None:
    long = "Error [not_found]: old_text is not in a.py. " + "It may be elsewhere. " * 30
    failed = {
        "name": "edit_file",
        "status": "failed",
        "is_error": True,
        "category": "not_found",
        "output": long,
    }
    shown = card(fold="peek", **failed)
    assert shown[1].startswith("  old_text is not in a.py. It may")
    assert (len(shown), shown[-1]) == (7, "  … more (Enter shows all)")
    assert not any("Error [" in row for row in card(**failed))


def test_of_a_failed_command_the_end_is_shown_and_that_it_is_not_all() -> None:
    ran = {"name": "bash", "arguments": {"command": "make"}, "status": "done", "exit_code": 2}

    def peek(rows: int) -> list[str]:
        output = "\n".join([*map(str, range(rows)), "exit code: 2"])
        return [row.strip() for row in card(fold="peek", **ran, output=output)[1:]]

    assert peek(6) == ["0", "1", "2", "3", "4", "5"]
    assert peek(7) == ["… more (Enter shows all)", "2", "3", "4", "5", "6"]
    assert peek(3_000) == ["… more (Enter shows all)", "2995", "2996", "2997", "2998", "2999"]


def test_every_tool_has_words_of_its_own() -> None:
    specs = [*builtin_tools(), *notes.tools(), *task_tools.tools({})]
    assert [
        spec.name for spec in specs if card(name=spec.name, status="done")[0].startswith("✓ Called")
    ] == []
    given = {"agent": "explore", "prompt": "find the callers"}
    assert (
        card(name="task", arguments=given, status="done", output="x")[0] == "✓ Gave explore: find the callers"
    )


def test_a_list_that_was_updated_tells_how_far_it_is() -> None:
    items = [
        {"title": "a", "status": "completed"},
        {"title": "b\x1b[2J", "status": "in_progress"},
        {"title": "c"},
    ]
    shown = card(fold="folded", name="todo", arguments={"items": items}, status="done")
    assert shown == ["✓ Updated the list 1/3, now: b␛[2J"]
    for odd in ("x", ["x", 3, {}], {"a": 1}, [{"status": ["x"]}]):
        assert card(fold="folded", name="todo", arguments={"items": odd}, status="done")[0].startswith(
            "✓ Upd"
        )


def test_thoughts_are_drawn_without_their_marks_and_their_lines_do_not_jump_while_they_grow() -> None:
    text = "## On it\n\n**Bold** and `code`, 2 ** 3\n- a point that is longer than a line can be here"
    assert [line.text for line in thought_lines(text, 30, [("┊ ", "")])] == [
        "┊ On it", "┊ ", "┊ Bold and code, 2 ** 3", "┊ • a point that is longer", "┊   than a line can be here",
    ]  # fmt: skip
    block = ThinkingBlock(1, live=True)
    shown: list[list[str]] = []
    for number in range(2_000):
        block.add(f"word {number} ")
        if number > 1_000 and number % 10 == 0:
            shown.append([line.text for line in render_block(block, 60, "peek")])
    moved = [before for before, after in pairwise(shown) if before[-2] not in after]
    assert len(moved) < 10
    assert all(len(rows) == 8 for rows in shown)
