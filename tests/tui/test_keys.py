"""Keys: one table, keys that users choose, conflicts."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.transports.tui.key_table import key_table
from aar.transports.tui.keys import (
    ACTIONS,
    HELP,
    PLACES,
    flat,
    keyboard_tables,
    keymap,
    normal_key,
    shown_key,
    shown_keys,
)

PAGE = Path(__file__).parents[2] / "docs/keyboard.md"


def test_every_action_has_a_known_place_a_label_and_a_sentence() -> None:
    for action in key_table():
        assert action.place in PLACES, action.name
        assert action.label
        assert action.help.endswith("."), action.name


def test_no_key_does_two_things_in_one_place() -> None:
    for place in PLACES:
        keys = [key for action in key_table() if action.place == place for key in action.keys.split(",")]
        assert len(keys) == len(set(keys)), place


def test_every_action_has_a_sentence_of_its_own() -> None:
    for action in key_table():
        assert action.help.lower().rstrip(".") != action.label.lower(), action.name
        assert action.help.endswith("."), action.name


def test_sentences_are_kept_only_for_actions_that_there_are() -> None:
    assert set(HELP) <= {action.name for action in key_table()}


def test_the_page_on_keys_is_in_step_with_the_table() -> None:
    assert keyboard_tables(key_table()) in PAGE.read_text(encoding="utf-8"), (
        "run: python docs/generate_keyboard.py --write"
    )


def test_keys_can_be_given_to_actions_by_table_or_dotted_name() -> None:
    wanted = flat({"app": {"toggle_panel": "Ctrl-L"}, "list.choose": "enter,ctrl+j", "quit": "f10"})
    assert wanted == {"app.toggle_panel": "Ctrl-L", "list.choose": "enter,ctrl+j", "app.quit": "f10"}
    chosen, problems = keymap(wanted, ACTIONS)
    assert chosen == {"app.toggle_panel": "ctrl+l", "list.choose": "enter,ctrl+j", "app.quit": "f10"}
    assert problems == []


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"app.toggle_pannel": "f2"}, "there is no such action. Did you mean app.toggle_panel?"),
        ({"app.quit": " , "}, "names no key"),
        ({"app.quit": "f5"}, "f5 already does app.show_changes"),
        ({"list.choose": "f5"}, "f5 already does app.show_changes"),
        ({"app.quit": "foo"}, "'foo' names no key"),
        ({"app.quit": "f99"}, "names no key"),
        ({"app.quit": "Ctrl-M"}, "Ctrl+M is Enter to a terminal"),
        ({"app.show_log": "ctrl+["}, "is Esc to a terminal"),
        ({"app.show_log": "x"}, "x is typed as text there; hold Ctrl or Alt"),
        ({"list.choose": "enter,space"}, "Space is typed as text there"),
    ],
)
def test_what_cannot_be_had_is_told_and_changes_nothing(wanted: dict[str, str], told: str) -> None:
    chosen, problems = keymap(wanted, ACTIONS)
    assert chosen == {}
    assert len(problems) == 1
    assert told in problems[0]


def test_two_actions_can_swap_their_keys() -> None:
    chosen, problems = keymap({"app.show_log": "f7", "app.show_settings": "f8"}, ACTIONS)
    assert problems == []
    assert chosen == {"app.show_log": "f7", "app.show_settings": "f8"}


def test_the_keys_that_aar_has_by_itself_can_be_given() -> None:
    for action in key_table():
        keys = action.keys.split(",")
        assert [normal_key(key) for key in keys] == keys, action.name
        assert keymap({action.name: action.keys}, key_table())[1] == [], action.name


def test_the_example_of_the_page_has_no_problems() -> None:
    example = PAGE.read_text(encoding="utf-8").partition("```toml")[2].partition("```")[0]
    wanted = flat(tomllib.loads(example)["tui"]["keys"])
    assert keymap(wanted, key_table()) == ({name: normal_keys(keys) for name, keys in wanted.items()}, [])


def normal_keys(keys: str) -> str:
    return ",".join(normal_key(key) for key in keys.split(","))


def test_keys_are_shown_as_people_write_them() -> None:
    assert shown_key("ctrl+t") == "Ctrl+T"
    assert shown_key("+") == "+"
    assert shown_keys("escape,pageup") == "Esc or PgUp"
    assert normal_key("Ctrl-T") == "ctrl+t"
    assert normal_key("[") == "left_square_bracket"
    assert normal_key(".") == "full_stop"
    assert normal_key("Ctrl--") == normal_key("ctrl+minus") == "ctrl+minus"
    assert normal_key("control+PgUp") == "ctrl+pageup"
    assert normal_key("Esc") == "escape"
    assert normal_key("two words") == ""


@given(st.text(max_size=30))
def test_any_text_is_a_key_or_none(text: str) -> None:
    key = normal_key(text)
    assert key == normal_key(key)
    assert "," not in key or key == ","
    assert not set(key) & set(" \n\t")
