"""The parts of the prompt that need no screen: chips, completion, recall, dropped files."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.transports.tui.prompt.chips import Chips, PastedImage, PastedText, normal_lines, wants_chip
from aar.transports.tui.prompt.completion import FileList, Suggestion, find_request, rank_commands
from aar.transports.tui.prompt.images import dropped_paths, read_image
from aar.transports.tui.prompt.recall import Recall, search
from tests.support.work import calls_made

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


# --- chips -----------------------------------------------------------------------------------------------


def test_a_chip_tells_how_much_it_holds_and_is_sent_whole() -> None:
    chips = Chips()
    long = "line\n" * 2000
    label = chips.add(PastedText(long))
    assert label == "[pasted 2,000 lines]"
    assert chips.add(PastedText("x" * 5000)) == "[pasted 5,000 characters]"
    assert chips.expand(f"Look: {label}!") == (f"Look: {long}!", ())


def test_two_chips_of_the_same_size_have_different_labels() -> None:
    chips = Chips()
    first, second = chips.add(PastedText("a\n" * 30)), chips.add(PastedText("b\n" * 30))
    assert (first, second) == ("[pasted 30 lines]", "[pasted 30 lines #2]")
    assert chips.add(PastedText("a\n" * 30)) == first
    assert chips.expand(second + first)[0] == "b\n" * 30 + "a\n" * 30


def test_an_image_goes_beside_the_text_and_its_label_stays() -> None:
    chips = Chips()
    image = PastedImage("shot [1].png", "image/png", "AAAA")
    label = chips.add(image)
    assert label == "[image shot _1_.png]"
    assert chips.expand(f"see {label} and {label}") == (f"see {label} and {label}", (image,))


@given(
    st.lists(st.text(min_size=1, max_size=30), max_size=6), st.lists(st.text(alphabet="ab[]# ", max_size=9))
)
def test_pasted_text_takes_the_place_of_its_label_whatever_it_holds(
    pastes: list[str], between: list[str]
) -> None:
    chips = Chips()
    typed, sent = "", ""
    for place, paste in enumerate(pastes):
        word = between[place] if place < len(between) else " "
        typed += chips.add(PastedText(paste)) + word
        sent += paste + word
    assert chips.expand(typed)[0] == sent
    assert Chips.load(chips.dump()).expand(typed)[0] == sent
    assert "".join(typed[start:end] for start, end, _ in chips.used(typed).spans(typed)) == "".join(
        typed[start:end] for start, end, _ in chips.spans(typed)
    )


@given(st.recursive(st.none() | st.text(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)))
def test_a_draft_that_is_broken_gives_no_chips_and_no_error(data: object) -> None:
    assert all(isinstance(chip, PastedText | PastedImage) for chip in Chips.load(data).by_label.values())


def test_short_and_harmless_pastes_stand_as_they_are() -> None:
    assert not wants_chip("two\nlines")
    assert wants_chip("x\n" * 20)
    assert wants_chip("x" * 5000)
    assert wants_chip("red \x1b[31m"), "what a terminal would obey is not put on the screen"
    assert wants_chip("a\u202eb")
    assert normal_lines("a\r\nb\rc") == "a\nb\nc"


# --- completion ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "query"),
    [
        ("@", ""),
        ("look at @src/a", "src/a"),
        ("(@a", "a"),
        ("first line\n@b", "b"),
        ("me@example", None),
        ("a @ b", None),
        ("@@x", None),
        ("done @a.py ", None),
        ("@a.py:10-2", None),
        ('@"my docs/a', "my docs/a"),
        ('@"my docs/a" ', None),
    ],
)
def test_a_mention_is_completed_only_where_it_is_one(before: str, query: str | None) -> None:
    request = find_request(before)
    assert (request.query if request and request.kind == "file" else None) == query


def test_a_mention_in_the_middle_of_a_word_is_left_alone() -> None:
    assert find_request("see @a", "bc") is None
    assert find_request("see @a", " bc") is not None


@pytest.mark.parametrize(
    ("before", "kind"),
    [("/", "command"), ("/mo", "command"), ("/model gp", "argument"), ("/etc/hosts", None), (" /x", None)],
)
def test_commands_are_completed_at_the_start_only(before: str, kind: str | None) -> None:
    request = find_request(before)
    assert (request.kind if request else None) == kind


def _files(*paths: str) -> FileList:
    files = FileList()
    files.set(paths)
    return files


def test_files_and_folders_are_found_by_their_letters_best_first() -> None:
    files = _files("docs/applet.md", "src/app/main.py", "src/deep/er/app.py", "app.py")
    found = [item.label for item in files.search("app")]
    assert found[0] == "app.py"
    assert set(found) == {"app.py", "docs/applet.md", "src/app/", "src/app/main.py", "src/deep/er/app.py"}
    assert next(item.insert for item in files.search("src/ap")) == "src/app/"
    assert files.search("zzz") == []
    assert [item.insert for item in files.search("sdeap")] == ["src/deep/er/app.py "]


def test_a_path_with_spaces_is_put_in_quotes_and_one_with_quotes_is_not_offered() -> None:
    files = _files("a b.py", "ab.py", 'q"x.py', "my docs/read me.md")
    assert [item.insert for item in files.search("")] == ['"my docs/', '"a b.py" ', "ab.py "]
    request = find_request('see @"my docs/re')
    assert request is not None
    assert (request.query, request.start) == ("my docs/re", 5)
    assert [item.insert for item in files.search(request.query)] == ['"my docs/read me.md" ']


def test_resources_of_servers_are_found_beside_the_files() -> None:
    files = FileList()
    files.set(["note.md"], ["docs:note://greeting"])
    assert [item.insert for item in files.search("note")] == ["note.md ", "docs:note://greeting "]
    assert [item.label for item in files.search("")] == ["note.md", "docs:note://greeting"]


@given(st.lists(st.text(alphabet="abc/._", min_size=1, max_size=8), max_size=20), st.text("abc", max_size=4))
def test_going_on_with_a_query_finds_the_same_as_beginning_with_it(paths: list[str], query: str) -> None:
    going_on, at_once = _files(*paths), _files(*paths)
    for length in range(len(query) + 1):
        stepwise = going_on.search(query[:length])
    assert [item.label for item in stepwise] == [item.label for item in at_once.search(query)]


def test_twenty_thousand_files_are_searched_within_a_key_stroke() -> None:
    files = _files(*(f"package{n % 97}/module{n % 13}/file_{n}.py" for n in range(20_000)))
    # A call or two for each file take 30 ms.
    assert calls_made(lambda: files.search("mf19")) < 10 * 20_000
    assert files.search("mf19")


def test_commands_that_begin_with_the_letters_come_first() -> None:
    commands = [Suggestion(f"/{name} ", f"/{name}") for name in ("model", "mode", "memory", "rename")]
    assert [item.label for item in rank_commands("mo", commands)] == ["/mode", "/model", "/memory"]
    assert next(item.label for item in rank_commands("me", commands)) == "/memory"
    assert [item.label for item in rank_commands("nam", commands)] == ["/rename"]
    assert len(rank_commands("", commands)) == 4


# --- recall ----------------------------------------------------------------------------------------------


def test_going_back_finds_prompts_that_begin_the_same_and_returns_to_the_draft() -> None:
    recall = Recall(["fix a", "test b", "fix c"])
    assert recall.older("fix", "fix") == "fix c"
    assert recall.older("fix c", "") == "fix a"
    assert recall.older("fix a", "") is None
    assert recall.newer("fix a") == "fix c"
    assert recall.newer("fix c") == "fix"
    assert recall.newer("fix") is None


def test_a_prompt_that_was_changed_begins_another_walk() -> None:
    recall = Recall(["one", "two"])
    assert recall.older("", "") == "two"
    assert recall.older("two!", "two!") is None
    assert recall.newer("two!") is None


@given(
    st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=8), st.text(alphabet="ab", max_size=2)
)
def test_going_back_and_forth_ends_with_what_was_typed(entries: list[str], typed: str) -> None:
    recall = Recall(entries)
    text, steps = typed, 0
    while (entry := recall.older(text, typed)) is not None:
        assert entry.startswith(typed)
        text, steps = entry, steps + 1
        assert steps <= len(entries)
    while (entry := recall.newer(text)) is not None:
        text = entry
    assert text == typed


def test_searching_wants_every_word_and_tells_each_prompt_once() -> None:
    entries = ["Fix the parser", "add tests", "fix the Parser", "Fix the parser"]
    assert search(entries, "fix parser") == ["Fix the parser", "fix the Parser"]
    assert search(entries, "Parser") == ["fix the Parser"]
    assert search(entries, "nothing") == []


# --- files that are dragged in -----------------------------------------------------------------------------


def test_a_dragged_file_is_known_in_every_way_a_terminal_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "my pic.png"
    file.write_bytes(PNG)
    escaped = str(file).replace(" ", "\\ ")
    for text in (str(file), f"'{file}'", escaped, f"file://{str(file).replace(' ', '%20')}", f"{escaped}\n"):
        assert dropped_paths(text) == [file], text
    assert dropped_paths(f"'{file}' '{file}'") == [file, file]
    assert dropped_paths(f"look at {file}") == []
    assert dropped_paths("/no/such/file.png") == []
    assert dropped_paths("/" + "a" * 5000) == []


@given(st.text(max_size=60))
def test_no_paste_makes_the_search_for_files_fail(text: str) -> None:
    assert all(path.is_file() for path in dropped_paths("/" + text))


def test_an_image_is_known_by_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(PNG)
    image = read_image(file)
    assert isinstance(image, PastedImage)
    assert (image.media_type, base64.b64decode(image.data)) == ("image/png", PNG)
    file.write_text("words")
    assert read_image(file) is None
    assert "cannot be read" in str(read_image(tmp_path / "none.png"))


def test_an_image_that_is_too_large_is_refused_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "large.png"
    with file.open("wb") as target:
        target.write(PNG)
        target.truncate(10_000_100)
    assert read_image(file) == "large.png is larger than 10 MB; make it smaller first."
