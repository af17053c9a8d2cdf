"""Text of others in logs and on terminals: escaped, shortened, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.foreign_text import escaped, escaped_lines, one_line, shortened

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=[]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("clicks-7", "clicks-7"),
        ("größer 漢字 🎉", "größer 漢字 🎉"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("two\nlines\r\tand a tab", "two\\nlines\\r\\tand a tab"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("abc\u202edcba\u2069", "abc\\u202edcba\\u2069"),
        ("half \udcff", "half \\udcff"),
        ("C:\\temp", "C:\\temp"),
    ],
)
def test_control_characters_are_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_lines_and_tabs_stay_where_a_text_is_made_of_them() -> None:
    assert escaped_lines("a\tb\nc\x1b\r") == "a\tb\nc\\x1b\\r"


@given(ANY_TEXT)
def test_nothing_that_a_terminal_acts_on_is_left(text: str) -> None:
    for left in (escaped(text), escaped_lines(text).replace("\n", "").replace("\t", "")):
        assert not [each for each in left if ord(each) < 32 or 0x7F <= ord(each) < 0xA0]
        assert len(left.splitlines()) <= 1
        left.encode()


@given(ANY_TEXT, st.integers(10, 100))
def test_a_line_is_bounded(text: str, most_bytes: int) -> None:
    line = one_line(text, most_bytes)
    assert len(line.encode()) <= most_bytes + len("…(1,000,000 characters)".encode())


def test_an_endless_id_is_shortened_where_it_stands() -> None:
    line = shortened(f"the group {'g' * 32_768} is unknown to {'p' * 200}")
    assert line == f"the group {'g' * 64}…(32,768 characters) is unknown to {'p' * 200}"


def test_what_has_no_endless_word_is_cut_at_the_end() -> None:
    assert one_line("a b " * 1000, 100) == "a b " * 25 + "…(4,000 characters)"
