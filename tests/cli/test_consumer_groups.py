"""`consumer-groups`: JSON, tables, resets, and what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas import OffsetAndMetadata, Producer
from barnabas.base.ids import TopicPartition
from barnabas.cli.consumer_groups_reset import parse_datetime, parse_duration
from barnabas.cli.consumer_groups_shown import Column, show
from barnabas.cli.re2_syntax import problem_with
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from barnabas.testing import EmbeddedBroker
from tests.cli import story
from tests.cli.tools import Tools


def test_groups_as_json(barnabas: Tools, our_node: str) -> None:
    listed = barnabas.json_at(our_node, "consumer-groups --list")
    assert {"group": "readers", "type": "Classic", "state": "Empty"} in listed
    (described,) = barnabas.json_at(our_node, "consumer-groups --describe --group readers")
    assert described["offsets"][0] | {"leaderEpoch": None} == {
        "topic": "clicks",
        "partition": 0,
        "leaderEpoch": None,
        "currentOffset": 3,
        "logEndOffset": 5,
        "lag": 2,
        "pending": False,
        "consumerId": None,
    }
    (state,) = barnabas.json_at(our_node, "consumer-groups --describe --group readers --state")
    assert (state["state"], state["members"], state["assignmentStrategy"]) == ("Empty", 0, None)
    assert barnabas.json_at(our_node, "consumer-groups --validate-regex '(?=a)'") == {
        "regex": "(?=a)",
        "valid": False,
        "problem": "look-around is not supported: (?=",
    }


def test_a_group_at_work(barnabas: Tools, our_node: str) -> None:
    with story.member(our_node, "busy"):
        (described,) = barnabas.json_at(our_node, "consumer-groups --describe --group busy --members")
        (member,) = described["members"]
        assert (member["clientId"], member["partitions"]) == ("reader", 2)
        assert member["assignment"] == {"clicks": [0, 1]}
        reset = barnabas.at(
            our_node, "consumer-groups --reset-offsets --group busy --topic clicks --to-latest --execute"
        )
        assert reset.code == 1
        assert "can only be reset while it is inactive, but it is Stable" in reset.err
        deleted = barnabas.at(our_node, "consumer-groups --delete --group busy")
        assert deleted.code == 1
        assert "* Group 'busy' could not be deleted due to: " in deleted.out


def test_offsets_that_are_pending_in_a_transaction(barnabas: Tools) -> None:
    with EmbeddedBroker() as broker:
        node = broker.bootstrap_servers
        assert barnabas.at(node, "topics --create --topic clicks --partitions 3").code == 0
        reset = "consumer-groups --reset-offsets --group g --topic clicks --to-latest --execute"
        assert barnabas.at(node, reset).code == 0
        plain = barnabas.at(node, "consumer-groups --describe --group g")
        with Producer(bootstrap_servers=node, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            offsets = {TopicPartition("clicks", number): OffsetAndMetadata(7) for number in (0, 2)}
            producer.send_offsets_to_transaction(offsets, GroupMetadata("g"))
            producer.flush()
            told = barnabas.at(node, "consumer-groups --describe --group g")
            assert (told.code, told.out) == (0, plain.out)
            note = "\nConsumer group 'g' has offsets in transactions that have not ended: clicks:0,2\n"
            assert told.err == plain.err + note
            (described,) = barnabas.json_at(node, "consumer-groups --describe --group g")
            assert [each["pending"] for each in described["offsets"]] == [True, False, True]
            assert [each["currentOffset"] for each in described["offsets"]] == [0, 0, 0]
            producer.commit_transaction()
        (described,) = barnabas.json_at(node, "consumer-groups --describe --group g")
        shown = [(each["currentOffset"], each["pending"]) for each in described["offsets"]]
        assert shown == [(7, False), (0, False), (7, False)]
        assert barnabas.at(node, "consumer-groups --describe --group g").err == plain.err


def test_a_reset_is_only_shown_unless_it_is_to_be_executed(barnabas: Tools, our_node: str) -> None:
    call = "consumer-groups --reset-offsets --group careful --topic clicks:0 --to-offset 4"
    row = {"group": "careful", "topic": "clicks", "partition": 0, "newOffset": 4}
    told = barnabas.at(our_node, call)
    assert told.code == 0
    assert told.err.startswith("WARN: nothing is changed, since --execute is missing")
    assert barnabas.json_at(our_node, f"{call} --dry-run") == [row]
    assert barnabas.at(our_node, "consumer-groups --describe --group careful").code == 1
    assert barnabas.json_at(our_node, f"{call} --execute") == [row]
    (described,) = barnabas.json_at(our_node, "consumer-groups --describe --group careful")
    assert [each["currentOffset"] for each in described["offsets"]] == [4]
    assert barnabas.json_at(our_node, "consumer-groups --delete-offsets --group careful --topic clicks:0") == [
        {"topic": "clicks", "partition": 0, "deleted": True}
    ]


def test_what_was_exported_can_be_read_again(barnabas: Tools, our_node: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("clicks,0,2\n\nclicks,1,99\n")
    call = f"consumer-groups --reset-offsets --group planned --from-file {path} --execute --export"
    told = barnabas.at(our_node, call)
    assert (told.code, told.out) == (0, "clicks,0,2\nclicks,1,0\n")
    assert "New offset (99) is higher than latest offset for topic partition clicks-1" in told.err
    path.write_text(f'planned,clicks,0,1\n"{story.LONG_GROUP}",clicks,0,4\n')
    groups = f"--group planned --group {story.LONG_GROUP}"
    told = barnabas.at(our_node, f"consumer-groups --reset-offsets {groups} --from-file {path} --dry-run --export")
    assert told.out == f"{story.LONG_GROUP},clicks,0,4\nplanned,clicks,0,1\n"
    told = barnabas.at(our_node, f"consumer-groups --reset-offsets --group other --from-file {path} --dry-run")
    assert (told.code, "there is nothing for group 'other' in the file" in told.err) == (1, True)
    path.write_text("planned,clicks\n")
    told = barnabas.at(our_node, f"consumer-groups --reset-offsets --group planned --from-file {path} --dry-run")
    assert "line 1: TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET is expected" in told.err


def test_groups_are_deleted_one_by_one(barnabas: Tools, our_node: str) -> None:
    reset = "consumer-groups --reset-offsets --group doomed --topic clicks --to-latest --execute"
    assert barnabas.at(our_node, reset).code == 0
    told = barnabas.at(our_node, "consumer-groups --delete --group doomed --group nobody")
    assert told.code == 1
    assert "* Group 'nobody' could not be deleted due to: " in told.out
    assert told.out.endswith("These consumer groups were deleted successfully: 'doomed'\n")
    assert barnabas.at(our_node, reset).code == 0
    told = barnabas.at(our_node, "consumer-groups --delete --group doomed")
    assert told == (0, "Deletion of requested consumer groups ('doomed') was successful.\n", "")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("--describe --group nobody", "consumer group 'nobody' does not exist"),
        ("--describe --group nobody --state", "consumer group 'nobody' does not exist"),
        ("--reset-offsets --group readers --topic clicks:0,9 --to-latest --dry-run", "do not exist: clicks-9"),
        ("--reset-offsets --group readers --topic nothing --to-latest --dry-run", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("--reset-offsets --group readers --topic clicks:x --to-latest --dry-run", "--topic: 'clicks:x'"),
        ("--reset-offsets --group readers --topic a.b_c:0 --shift-by 1 --dry-run", "there is no offset of a.b_c-0"),
        ("--reset-offsets --group readers --topic clicks --to-datetime today --dry-run", "--to-datetime: 'today'"),
        ("--reset-offsets --group readers --topic clicks --by-duration 1h --dry-run", "--by-duration: '1h'"),
        ("--reset-offsets --group readers --from-file /nowhere --dry-run", "/nowhere: No such file or directory"),
        ("--delete-offsets --group a --group b --topic clicks", "takes one --group at a time"),
    ],
)
def test_failures_are_told_in_one_line(barnabas: Tools, our_node: str, call: str, said: str) -> None:
    told = barnabas.at(our_node, f"consumer-groups {call}")
    assert (told.code, told.out) == (1, "")
    assert said in told.err
    assert told.err.count("\n") == 1


def test_one_group_that_is_missing_does_not_hide_the_others(barnabas: Tools, our_node: str) -> None:
    told = barnabas.at(our_node, "consumer-groups --describe --group readers --group nobody --state")
    assert told.code == 1
    assert "readers" in told.out
    assert told.err.endswith("barnabas: consumer group 'nobody' does not exist\n")


def test_one_group_that_cannot_be_reset_does_not_hold_up_the_others(barnabas: Tools, our_node: str) -> None:
    call = "consumer-groups --reset-offsets --group nobody --group readers --topic clicks:0 --shift-by 1 --execute"
    told = barnabas.at(our_node, call)
    assert told.code == 1
    assert told.err == "barnabas: group 'nobody': --shift-by: there is no offset of clicks-0 that could be shifted\n"
    assert told.out.splitlines()[2:] == ["readers         clicks          0          4"]
    assert barnabas.at(our_node, call.replace("--shift-by 1", "--to-offset 3")).code == 0
    assert barnabas.at(our_node, "consumer-groups --delete --group nobody").code == 0


def test_at_a_terminal_there_are_tables_and_progress(barnabas: Tools, our_node: str, terminal: None) -> None:
    for form in ("", "--members", "--state"):
        assert "┃" in barnabas.at(our_node, f"consumer-groups --describe --group readers {form}").out
    assert "┃" in barnabas.at(our_node, "consumer-groups --list --state").out
    groups = " ".join(f"--group many-{number}" for number in range(12))
    told = barnabas.at(our_node, f"consumer-groups --reset-offsets {groups} --topic clicks:0 --to-latest --dry-run")
    assert "many-11" in told.out
    assert "resetting groups" in told.err


def test_columns_grow_where_kafkas_do(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("A", 4, grows=True), Column("B", 3), Column("C", 0)]
    show(columns, [("longer", None, 1), ("x", "wide", TopicPartition("t", 0))])
    assert capsys.readouterr().out == "\nA      B   C\nlonger -   1\nx      wide t-0\n"


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("2020-11-10T16:51:38.198", 1605027098198),
        ("2020-11-10T16:51:38.198Z", 1605027098198),
        ("2020-11-10T16:51:38.198+0800", 1604998298198),
        ("2020-11-10T16:51:38.198+08", 1604998298198),
        ("2020-11-10T16:51:38.198-08:00", 1605055898198),
    ],
)
def test_times(text: str, timestamp_ms: int) -> None:
    assert parse_datetime(text) == timestamp_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("P2DT3H4M5.5S", 183_845_500), ("PT0S", 0), ("-PT1M", -60_000)],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


GOOD_REGEXES = [
    "a.*",
    r"\pN+",
    "[[:alpha:]]x",
    r"\Q(a\E",
    r"a\z",
    "(?i)a|b",
    r"\\1",
    "[(?!]",
    "x{2,5}?",
    "(?<n>a)",
    r"[\d-z]",
]
BAD_REGEXES = [
    "(a",
    "a)",
    "[a",
    "*a",
    r"(a)\1",
    "(?!a)b",
    "(?<=a)b",
    "(?>a)",
    "a++",
    "a{1001}",
    r"a\Z",
    "(?x)a",
    "[[:no:]]",
]


@pytest.mark.parametrize("regex", GOOD_REGEXES)
def test_what_re2_takes(regex: str) -> None:
    assert problem_with(regex) is None


@pytest.mark.parametrize("regex", BAD_REGEXES)
def test_what_re2_refuses(regex: str) -> None:
    assert problem_with(regex) is not None
