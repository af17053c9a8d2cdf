"""The text files of a log directory: exact bytes, strict reading, and no half-written state."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.storage.checkpoints import (
    Checkpoint,
    read_clean_shutdown,
    read_epochs,
    read_offsets,
    read_topic_id,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_offsets,
    write_topic_id,
)
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import read_file
from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk
from tests.oracles import needs_kafka, run_java

PATH = "data/recovery-point-offset-checkpoint"
TOPIC_ID = Uuid.parse("Fkol6pDaSAWkZAYeXtNzjQ")
OFFSETS = {TopicPartition("b.b_b-b", 0): 7, TopicPartition("a", 10): 2**63 - 1, TopicPartition("a", 9): 0}


def disk_with(content: bytes | None = None, path: str = PATH) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(1))
    disk.make_directory("data")
    if content is not None:
        disk.open(path, create=True).write_at(0, content)
    return disk


class TestOffsets:
    def test_bytes(self) -> None:
        disk = disk_with()
        write_offsets(disk, PATH, OFFSETS)
        assert read_file(disk, PATH) == b"0\n3\na 9 0\na 10 9223372036854775807\nb.b_b-b 0 7\n"
        assert read_offsets(disk, PATH) == OFFSETS
        assert disk.names("data") == ["recovery-point-offset-checkpoint"]

    @given(
        st.dictionaries(
            st.builds(
                TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)
            ),
            st.integers(0, 2**63 - 1),
            max_size=20,
        )
    )
    def test_what_was_written_is_read(self, offsets: dict[TopicPartition, int]) -> None:
        disk = disk_with()
        write_offsets(disk, PATH, offsets)
        assert read_offsets(disk, PATH) == offsets

    @pytest.mark.parametrize("content", [None, b"", b"0\n", b"0\n0\n", b"0\r\n0\r\n"])
    def test_nothing_there(self, content: bytes | None) -> None:
        assert read_offsets(disk_with(content), PATH) == {}

    def test_any_white_space_parts_the_fields(self) -> None:
        assert read_offsets(disk_with(b"0\n1\na\t 3  5"), PATH) == {TopicPartition("a", 3): 5}

    @pytest.mark.parametrize(
        ("content", "line", "reason"),
        [
            (b"1\n0\n", 1, "version 1 is unknown; only 0 can be read"),
            (b"\n", 1, "'' is not a number"),
            (b"zero\n0\n", 1, "'zero' is not a number"),
            (b"0\n-1\n", 2, "'-1' is not a number"),
            (b"0\n2\na 0 1\n", 2, "2 entries are announced, but 1 lines follow"),
            (b"0\n1\na 0 1\na 1 1\n", 2, "1 entries are announced, but 2 lines follow"),
            (b"0\n1\na 0\n", 3, "'a 0' is not a topic, a partition and an offset"),
            (b"0\n1\na 0 1 2\n", 3, "'a 0 1 2' is not a topic, a partition and an offset"),
            (b"0\n1\na 0 -1\n", 3, "'a 0 -1' is not a topic, a partition and an offset"),
            (b"0\n1\na 0 \xd9\xa1\n", 3, "'a 0 ١' is not a topic, a partition and an offset"),
            (b"0\n1\n\xff 0 1\n", 3, r"b'\xff 0 1' is not UTF-8"),
            (b"0\n2\na 0 1\na 0 1\n", 4, "a-0 is there twice"),
            (b"0\n1\n\0\0\0\0", 3, r"'\x00\x00\x00\x00' is not a topic, a partition and an offset"),
        ],
    )
    def test_bad_content_is_named(self, content: bytes, line: int, reason: str) -> None:
        with pytest.raises(CorruptLogError) as caught:
            read_offsets(disk_with(content), PATH)
        assert str(caught.value) == f"{PATH}, line {line}: {reason}"
        assert (caught.value.path, caught.value.position) == (PATH, line)

    def test_a_file_of_epochs_is_no_file_of_offsets(self) -> None:
        assert read_epochs(disk_with(b"0\n1\n3 5\n"), PATH) == [(3, 5)]
        with pytest.raises(CorruptLogError, match="line 3: '3 5' is not a topic, a partition and an offset"):
            read_offsets(disk_with(b"0\n1\n3 5\n"), PATH)


class TestTopicId:
    def test_bytes(self) -> None:
        disk = disk_with()
        assert read_topic_id(disk, "data") is None
        write_topic_id(disk, "data", TOPIC_ID)
        assert read_file(disk, "data/partition.metadata") == b"version: 0\ntopic_id: Fkol6pDaSAWkZAYeXtNzjQ"
        assert read_topic_id(disk, "data") == TOPIC_ID

    @pytest.mark.parametrize(
        ("content", "line", "reason"),
        [
            (b"", 1, "'' is not 'version: 0' and 'topic_id: …'"),
            (b"version: 0\n", 1, "'version: 0' is not 'version: 0' and 'topic_id: …'"),
            (b"version: 1\ntopic_id: x", 1, "version 1 is unknown; only 0 can be read"),
            (b"version: 0\ntopic_id: x", 2, "'x' is not an id: 22 letters, digits, '-' or '_' are expected"),
            (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2, "AAAAAAAAAAAAAAAAAAAAAA stands for no id"),
        ],
    )
    def test_bad_content_is_named(self, content: bytes, line: int, reason: str) -> None:
        with pytest.raises(CorruptLogError) as caught:
            read_topic_id(disk_with(content, "data/partition.metadata"), "data")
        assert str(caught.value) == f"data/partition.metadata, line {line}: {reason}"


class TestCleanShutdown:
    PATH = "data/.kafka_cleanshutdown"

    def test_bytes(self) -> None:
        disk = disk_with()
        assert read_clean_shutdown(disk, "data") is None
        write_clean_shutdown(disk, "data", 42)
        assert read_file(disk, self.PATH) == b'{"version":0,"brokerEpoch":42}'
        assert read_clean_shutdown(disk, "data") == 42
        remove_clean_shutdown(disk, "data")
        remove_clean_shutdown(disk, "data")
        assert read_clean_shutdown(disk, "data") is None

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"brokerEpoch":"1"}', b"\xff"])
    def test_the_stop_was_clean_whatever_the_file_says(self, content: bytes) -> None:
        assert read_clean_shutdown(disk_with(content, self.PATH), "data") == -1

    @pytest.mark.parametrize("seed", range(5))
    def test_once_removed_it_does_not_come_back(self, seed: int) -> None:
        disk = SimulatedDisk(random.Random(seed))
        disk.make_directory("data")
        disk.sync_directory("")
        write_clean_shutdown(disk, "data", 42)
        remove_clean_shutdown(disk, "data")
        disk.crash()
        assert read_clean_shutdown(disk, "data") is None


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_leaves_the_old_or_the_new_offsets(seed: int) -> None:
    for operation in range(1, 20):
        disk = SimulatedDisk(random.Random(seed))
        disk.make_directory("data")
        disk.sync_directory("")
        write_offsets(disk, PATH, {TopicPartition("a", 0): 1})
        disk.crash_at(disk.operations + operation)
        try:
            write_offsets(disk, PATH, OFFSETS)
        except SimulatedCrash:
            disk.crash()
            assert read_offsets(disk, PATH) in ({TopicPartition("a", 0): 1}, OFFSETS)
        else:
            disk.crash()
            assert read_offsets(disk, PATH) == OFFSETS
            return
    pytest.fail("writing never finished")


@needs_kafka()
def test_kafka_writes_and_reads_the_same(tmp_path: Path) -> None:
    disk = disk_with()
    write_offsets(disk, PATH, OFFSETS)
    write_topic_id(disk, "data", TOPIC_ID)
    write_clean_shutdown(disk, "data", 42)
    offsets = read_file(disk, PATH).hex()
    topic_id = read_file(disk, "data/partition.metadata").hex()
    clean_shutdown = read_file(disk, "data/.kafka_cleanshutdown").hex()
    expected = [
        ("offsets a 9 0 a 10 9223372036854775807 b.b_b-b 0 7", f"{offsets}."),
        (f"read_offsets {offsets}", "a-10=9223372036854775807,a-9=0,b.b_b-b-0=7"),
        (f"topic_id {TOPIC_ID}", f"{topic_id}."),
        (f"read_topic_id {topic_id}", str(TOPIC_ID)),
        ("clean_shutdown 42", f"{clean_shutdown}."),
        (f"read_clean_shutdown {clean_shutdown}", "42"),
        ("read_clean_shutdown ", "-1"),
    ]
    script = "\n".join(command for command, _ in expected)
    theirs = run_java("PartitionState.java", script, arguments=(str(tmp_path),)).splitlines()
    assert list(zip([command for command, _ in expected], theirs, strict=True)) == expected


def test_an_older_state_never_replaces_a_newer_one() -> None:
    written: list[int] = []
    checkpoint: Checkpoint[int] = Checkpoint(written.append)
    first, second, third = checkpoint.begin(1), checkpoint.begin(2), checkpoint.begin(3)
    second()
    first()
    assert written == [2]
    third()
    assert written == [2, 3]


def test_what_the_file_holds_is_not_written_again() -> None:
    written: list[int] = []
    is_broken = False

    def write(content: int) -> None:
        written.append(content)
        if is_broken:
            raise OSError(errno.EIO, "broken")

    checkpoint: Checkpoint[int] = Checkpoint(write)
    for content in (1, 1, 2, 2):
        checkpoint.begin(content)()
    assert written == [1, 2]
    is_broken = True
    with pytest.raises(OSError, match="broken"):
        checkpoint.begin(3)()
    is_broken = False
    # After a failure nobody knows what the file holds.
    checkpoint.begin(2)()
    assert written == [1, 2, 3, 2]
