"""``${VAR}`` in values, and text that may be TOML."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.config.environment import expand, parse_value
from aar.protocol.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain $HOME $(x) `y`", "plain $HOME $(x) `y`"),
        ("Bearer ${TOKEN}", "Bearer t0"),
        ("${TOKEN}${TOKEN}", "t0t0"),
        ("${NONE:-d}", "d"),
        ("${NONE:-}", ""),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${NONE:-a:-b c}", "a:-b c"),
        ("$${TOKEN}", "${TOKEN}"),
        ("${NESTED}", "${TOKEN}"),
    ],
)
def test_references_are_replaced_once(text: str, expanded: str) -> None:
    assert expand(text, {"TOKEN": "t0", "EMPTY": "", "NESTED": "${TOKEN}"}) == expanded


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(
        ConfigurationError, match="environment variable NOPE, which the config uses, is not set"
    ):
        expand("a ${NOPE} b", {})


@pytest.mark.parametrize("text", ["${", "${A", "${}", "${1A}", "${A-b}", "${A B}", "${$(id)}"])
def test_a_malformed_reference_is_an_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="correct it"):
        expand(text, {"A": "x"})


@given(st.text(st.characters(exclude_characters="$")))
def test_text_without_a_dollar_is_never_changed(text: str) -> None:
    assert expand(text, {}) == text


@given(st.text())
def test_any_text_is_a_value_and_never_more_than_one(text: str) -> None:
    value = parse_value(text)
    if value != text:
        assert tomllib.loads(f"v = {text}") == {"v": value} or value != value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("'x'", "x"),
        ("1\nb = 2", "1\nb = 2"),
        ("2026-01-01", "2026-01-01"),
    ],
)
def test_values_are_toml_or_text(text: str, value: object) -> None:
    assert parse_value(text) == value
