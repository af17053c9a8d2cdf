"""`.properties` texts: what Java reads we read, what we write Java reads."""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import other_process

from barnabas.base.errors import SettingsError
from barnabas.base.properties import format_properties, load_properties_file, parse_overrides, parse_properties

# Characters with a meaning in these files come up often; a few others stand for the rest.
PIECES = [*"\\\\\\\\=: \t\f\n\r#!abu0041ntfr", "\r\n", "\\u00e9", "\\uD83D\\uDE00", "é", "😀", "\x00"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
ANY_TEXT = st.text(max_size=20) | TEXTS.filter(lambda text: "\\u" not in text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a \t = \t b ", {"a": "b "}),
        ("  a=b", {"a": "b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("# a=b\n! c=d\n\n  \n#e\\\nf=g", {"f": "g"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc=d", {"a": "b\\c=d"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("\\\n# comment\na=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ('a=\\t\\n\\r\\f\\q\\"', {"a": '\t\n\r\fq"'}),
        ("a=\\u0041\\u00e9", {"a": "Aé"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a=b\rc=d\r\ne=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=é😀", {"a": "é😀"}),
    ],
)
def test_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert dict(parse_properties(text)) == expected


@pytest.mark.parametrize("text", ["x=1\na=\\u12", "x=1\na=\\uzzzz", "x=1\na=\\u 123", "x=1\na\\u=b"])
def test_a_malformed_unicode_escape_names_its_line(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^server\.properties line 2: \\u must be followed by four hexadecimal"):
        parse_properties(text, origin="server.properties")


def test_knows_where_each_entry_starts() -> None:
    properties = parse_properties("# head\n\na=1\nb=2\\\n  3\nc=4", origin="server.properties")
    assert [properties.where(name) for name in properties] == [f"server.properties line {n}" for n in (3, 4, 6)]


def test_the_last_of_several_entries_counts_and_the_others_are_remembered() -> None:
    properties = parse_properties("a=1\nb=2\na=3\na=4")
    assert dict(properties) == {"a": "4", "b": "2"}
    assert properties.repeated == {"a": [1, 3, 4]}


def test_values_do_not_show_in_its_repr() -> None:
    assert "swordfish" not in repr(parse_properties("ssl.key.password=swordfish"))


def test_overrides_are_taken_literally() -> None:
    overrides = parse_overrides(["a=b=c", " log.dirs =C:\\data"])
    assert dict(overrides) == {"a": "b=c", "log.dirs": "C:\\data"}
    assert overrides.where("a") == "--override"


@pytest.mark.parametrize("word", ["swordfish", "=swordfish"])
def test_an_override_without_a_name_is_refused_without_showing_it(word: str) -> None:
    with pytest.raises(SettingsError, match=r"^--override must look like name=value$"):
        parse_overrides([word])


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1"])
def test_files_may_be_utf8_or_latin1(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "a.properties"
    file.write_bytes("a=é".encode(encoding))
    assert load_properties_file(file)["a"] == "é"


def test_writes_what_meta_properties_needs() -> None:
    text = format_properties({"version": "1", "cluster.id": "a b=c", "directory.id": " é"}, comments=["Wed"])
    assert text == "#Wed\nversion=1\ncluster.id=a b\\=c\ndirectory.id=\\ \\u00E9\n"


@given(st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=5))
def test_what_is_written_is_read_back(entries: dict[str, str]) -> None:
    text = format_properties(entries)
    assert text.isascii()
    assert dict(parse_properties(text)) == entries


@given(TEXTS)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(SettingsError):
        assert all(
            1 <= entry.line <= text.count("\n") + text.count("\r") + 1
            for entry in parse_properties(text).entries.values()
        )


JAVA_TWIN = """
import java.io.*; import java.nio.charset.StandardCharsets; import java.util.*;
public class Twin {
    static String b64(String s) { return Base64.getEncoder().encodeToString(s.getBytes(StandardCharsets.UTF_16BE)); }
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out));
        for (String line; (line = in.readLine()) != null; ) {
            Properties p = new Properties();
            try {
                p.load(new StringReader(new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_16BE)));
                StringBuilder answer = new StringBuilder();
                for (String name : new TreeSet<>(p.stringPropertyNames()))
                    answer.append(b64(name)).append('=').append(b64(p.getProperty(name))).append(' ');
                out.println("ok " + answer);
            } catch (IllegalArgumentException e) { out.println("refused"); }
        }
        out.flush();
    }
}
"""


def _utf16(text: str) -> str:
    return base64.b64encode(text.encode("utf-16-be", "surrogatepass")).decode()


def _answer(text: str) -> str:
    try:
        properties = parse_properties(text)
    except SettingsError:
        return "refused"
    pairs = sorted(properties.items(), key=lambda pair: pair[0].encode("utf-16-be", "surrogatepass"))
    return "ok " + "".join(f"{_utf16(name)}::{_utf16(value)} " for name, value in pairs).replace("::", "=")


@other_process("needs java, whose java.util.Properties is the model" if shutil.which("java") is None else None)
def test_agrees_with_java_util_properties(tmp_path: Path) -> None:
    texts: list[str] = []

    @settings(max_examples=1500, database=None, derandomize=True)
    @given(TEXTS | st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3).map(format_properties))
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    source = tmp_path / "Twin.java"
    source.write_text(JAVA_TWIN)
    questions = "".join(f"{_utf16(text)}\n" for text in texts)
    answers = subprocess.run(["java", str(source)], input=questions, capture_output=True, text=True, check=True).stdout
    for text, theirs in zip(texts, answers.splitlines(), strict=True):
        # Java turns a lone surrogate into '?' on its way out; no setting holds one.
        if not any(0xD800 <= ord(char) < 0xE000 for value in _values(text) for char in value):
            assert _entries(_answer(text)) == _entries(theirs), repr(text)


def _entries(answer: str) -> list[str]:
    # For a lone backslash at the end of a text Java makes up an entry without name and value; we do not.
    return [entry for entry in answer.split() if entry != "="]


def _values(text: str) -> list[str]:
    try:
        return [part for pair in parse_properties(text).items() for part in pair]
    except SettingsError:
        return []
