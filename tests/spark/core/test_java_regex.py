"""Java's regular expressions on names of topics. Far more of them are compared with Java's own where it can run."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark.core.java_regex import RegexError, compile_java


@pytest.mark.parametrize(
    ("regex", "found", "not_found"),
    [
        ("clicks", ["clicks", "my-clicks-2"], ["Clicks"]),
        ("^orders$", ["orders"], ["orders2"]),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        ("[a-z&&[^aeiou]]{3}", ["xyz"], ["aei", "xay"]),
        ("[a-c[x-z]]", ["b", "y"], ["m"]),
        (r"^\p{Upper}\p{Lower}+$", ["Clicks"], ["clicks", "CLICKS"]),
        ("(?i)CLICKS", ["clicks", "Clicks"], ["orders"]),
        ("a(?i)b|C", ["aB", "c"], ["AB"]),
        ("(?i)[^a]$", ["b"], ["a", "A"]),
        ("(?x) a b # and nothing else", ["ab"], ["a b"]),
        (r"(?<first>[a-z])\k<first>", ["aab"], ["aba"]),
        (r"(a)\11", ["aa1"], ["aa"]),
        ("a++b", ["aab"], ["aa"]),
        (r"clicks\z", ["clicks"], ["clicks-2"]),
        (r"[\w-]+\.\d$", ["a-b.7"], ["a.b"]),
    ],
)
def test_what_java_writes_otherwise(regex: str, found: list[str], not_found: list[str]) -> None:
    compiled = compile_java(regex)
    assert [name for name in [*found, *not_found] if compiled.search(name)] == found


@pytest.mark.parametrize(
    ("regex", "words"),
    [
        ("(a", "not closed"),
        ("a)", "without a '('"),
        ("[a", "not closed"),
        ("[z-a]", "wrong way round"),
        ("*a", "nothing that '*' could repeat"),
        ("a{,2}", "should be like"),
        ("a{3,2}", "minimum above its maximum"),
        ("a{99999}", "too often"),
        (r"\y", "no such escape"),
        (r"\p{Klingon}", "'Klingon' is not supported"),
        (r"\k<x>", "no group called 'x'"),
        ("(?<=a+)b", "look-behind"),
        ("(?P<x>a)", "no such kind of group"),
        ("(" * 5000, "too large"),
        (r"\X", "no such escape, or it is not supported"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(regex: str, words: str) -> None:
    with pytest.raises(RegexError, match=re.escape(words)):
        compile_java(regex)


names = st.text("abcXYZ019._-", min_size=1, max_size=8)


@settings(deadline=None)
@given(names, names)
def test_a_quotation_is_found_where_it_stands(quoted: str, name: str) -> None:
    assert (compile_java(rf"\Q{quoted}\E").search(name) is not None) == (quoted in name)


@settings(deadline=None)
@given(st.text("ab019._-", min_size=1, max_size=6), names)
def test_what_both_languages_write_alike_means_the_same(text: str, name: str) -> None:
    regex = text.replace("-", ".*").replace("_", "|").replace("9", r"\d")
    assert (compile_java(regex).search(name) is None) == (re.search(regex, name, re.ASCII) is None)
