"""Lines of keys, also after strings, arrays and comments that look like keys."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from aar.config.toml_lines import find_line, join_key, key_lines, split_key

TEXT = '''# model = 1
[model] # [other]
name = """
stop = 2
[fake]
"""
stop = [
  "a = 1", # [x]
  '[y]',
]
 "quoted.key" . b = 'x'
esc = "\\"[z]"
[ a . "b c" ]
deep = { inner = 3 }
lit = \'\'\'
k = 1\'\'\'
[[list]]
last = 1
'''


def test_each_key_is_found_on_its_own_line() -> None:
    tomllib.loads(TEXT)
    assert key_lines(TEXT) == {
        ("model",): 2,
        ("model", "name"): 3,
        ("model", "stop"): 7,
        ("model", "quoted.key"): 11,
        ("model", "quoted.key", "b"): 11,
        ("model", "esc"): 12,
        ("a",): 13,
        ("a", "b c"): 13,
        ("a", "b c", "deep"): 14,
        ("a", "b c", "lit"): 15,
        ("list",): 17,
        ("list", "last"): 18,
    }
    assert find_line(TEXT, ("a", "b c", "deep", "inner")) == 14
    assert find_line(TEXT, ("nowhere",)) is None


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_a_key_survives_being_written_and_split(parts: list[str]) -> None:
    path = tuple(part.replace("\ud800", "") or "x" for part in parts)
    key = join_key(path)
    if "\n" not in key and tomllib_reads(key):
        assert split_key(key) == path


def tomllib_reads(key: str) -> bool:
    try:
        tomllib.loads(f"{key} = 1")
    except tomllib.TOMLDecodeError:
        return False
    return True


@given(st.text())
def test_no_text_breaks_the_search(text: str) -> None:
    assert all(line >= 1 for line in key_lines(text).values())


def test_what_is_no_key_is_none() -> None:
    assert [split_key(key) for key in ("", "a b", "a..b", ".a", "a.", "a=b")] == [None] * 6
    assert split_key(" a.'b.c' ") == ("a", "b.c")
