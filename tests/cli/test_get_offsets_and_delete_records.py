"""`get-offsets` and `delete-records`."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.delete_records import parse_offsets
from barnabas.cli.get_offsets import parse_rule
from tests.cli.story import offsets_file, produce
from tests.cli.tools import Tools


def test_offsets_as_json_and_as_a_table(
    barnabas: Tools, our_node: str, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "┃" in barnabas.at(our_node, "get-offsets --topic clicks").out
    monkeypatch.undo()
    assert barnabas.json_at(our_node, "get-offsets --topic clicks") == [
        {"topic": "clicks", "partition": 0, "offset": 5},
        {"topic": "clicks", "partition": 1, "offset": 0},
    ]
    assert barnabas.at(our_node, "get-offsets --topic clicks --time 1700000001500").out == "clicks:0:2\n"
    told = barnabas.at(our_node, "get-offsets --topic nothing")
    assert told == (1, "", "barnabas: no partition matches what was asked for\n")


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("a", {("a", 0), ("a", 1), ("a", 2), ("a", 3)}),
        ("a:1", {("a", 1)}),
        ("a:1-3", {("a", 1), ("a", 2)}),
        ("a:2-", {("a", 2), ("a", 3)}),
        ("a:-2", {("a", 0), ("a", 1)}),
        (":3", {("a", 3), ("b", 3)}),
        ("[ab]:0", {("a", 0), ("b", 0)}),
    ],
)
def test_rules(text: str, allowed: set[tuple[str, int]]) -> None:
    rule = parse_rule(text)
    partitions = [TopicPartition(topic, number) for topic in "ab" for number in range(4)]
    assert {tuple(each) for each in partitions if rule.allows(each)} == allowed


def test_records_are_deleted(barnabas: Tools, our_node: str, tmp_path: Path) -> None:
    assert barnabas.at(our_node, "topics --create --topic emptied --partitions 2").code == 0
    produce(our_node, "emptied", 3)
    path = tmp_path / "offsets.json"
    path.write_text(offsets_file(("emptied", 0, 2), ("emptied", 1, -1)))
    assert barnabas.json_at(our_node, f"delete-records --offset-json-file {path}") == [
        {"topic": "emptied", "partition": 0, "lowWatermark": 2},
        {"topic": "emptied", "partition": 1, "lowWatermark": 0},
    ]
    path.write_text(offsets_file(("emptied", 0, 3), ("emptied", 1, 9)))
    told = barnabas.at(our_node, f"delete-records --offset-json-file {path}")
    lines = told.out.splitlines()
    assert (told.code, told.err, lines[2]) == (1, "", "partition: emptied-0\tlow_watermark: 3")
    assert lines[3].startswith("partition: emptied-1\terror: ")
    path.write_text(offsets_file(("emptied", 1, 9)))
    assert barnabas.at(our_node, f"delete-records --offset-json-file {path}").code == 1


def test_the_table_at_a_terminal(barnabas: Tools, our_node: str, tmp_path: Path, terminal: None) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(offsets_file(("clicks", 1, 0)))
    assert "first offset" in barnabas.at(our_node, f"delete-records --offset-json-file {path}").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "no JSON"),
        ("[]", "an object with version 1 is expected"),
        ('{"version": 2, "partitions": []}', "version 1 is expected, not 2"),
        ('{"version": 1}', "'partitions' is missing"),
        ('{"partitions": [{"topic": "a"}]}', "partitions[0]: a topic (text), a partition and an offset"),
        ('{"partitions": [{"topic": "a", "partition": "0", "offset": 1}]}', "partitions[0]: "),
        (offsets_file(("a", 0, 1), ("a", 0, 2)), "a-0 is there more than once"),
    ],
)
def test_files_that_cannot_be_used(text: str, said: str) -> None:
    with pytest.raises(BarnabasError, match=r"^offsets\.json: ") as raised:
        parse_offsets(text.encode(), "offsets.json")
    assert said in str(raised.value)
