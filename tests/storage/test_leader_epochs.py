"""Leader epochs: which epoch wrote what, and where a follower must cut its log."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import InvariantError
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import read_file
from barnabas.storage.leader_epochs import EpochEnd, EpochEntry, LeaderEpochs, load_leader_epochs, save_leader_epochs
from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk
from tests.oracles import needs_kafka, run_java


def disk_with(directory: str = "t-0") -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(1))
    disk.make_directory(directory)
    return disk


class TestAssign:
    def test_each_new_epoch_is_news_once(self) -> None:
        epochs = LeaderEpochs()
        assert epochs.assign(3, 0)
        assert not epochs.assign(3, 5)
        assert epochs.assign(4, 9)
        assert epochs.entries == [(3, 0), (4, 9)]
        assert epochs.dirty

    def test_what_contradicts_the_news_is_forgotten(self) -> None:
        assert LeaderEpochs([(1, 0), (2, 10), (4, 20), (3, 30)]).entries == [(1, 0), (2, 10), (3, 30)]
        assert LeaderEpochs([(1, 0), (2, 10), (3, 20), (4, 10)]).entries == [(1, 0), (4, 10)]
        assert LeaderEpochs([(1, 5), (1, 3)]).entries == [(1, 3)]

    @pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
    def test_nonsense_is_refused(self, epoch: int, offset: int) -> None:
        with pytest.raises(InvariantError, match=f"leader epoch {epoch} cannot start at offset {offset} of a log"):
            LeaderEpochs().assign(epoch, offset)


class TestEndOffset:
    EPOCHS = LeaderEpochs([(2, 5), (4, 10), (7, 20)])

    @pytest.mark.parametrize(
        ("asked", "answer"),
        [
            (-1, (-1, -1)),
            (0, (0, 5)),  # older than all that is left: go on where our data begins
            (1, (1, 5)),
            (2, (2, 10)),
            (3, (2, 10)),
            (5, (4, 20)),
            (7, (7, 33)),  # the latest one ends with the log
            (8, (-1, -1)),
        ],
    )
    def test_answers(self, asked: int, answer: tuple[int, int]) -> None:
        assert self.EPOCHS.end_offset_for(asked, 33) == EpochEnd(*answer)

    def test_nothing_is_known_of_an_empty_log(self) -> None:
        assert LeaderEpochs().end_offset_for(0, 0) == (-1, -1)

    @pytest.mark.parametrize(("offset", "epoch"), [(4, None), (5, 2), (9, 2), (10, 4), (1000, 7)])
    def test_epoch_of_an_offset(self, offset: int, epoch: int | None) -> None:
        assert self.EPOCHS.epoch_for_offset(offset) == epoch


class TestTruncation:
    def test_from_the_end(self) -> None:
        epochs = LeaderEpochs([(2, 5), (4, 10), (7, 20)])
        assert not epochs.truncate_from_end(21)
        assert epochs.truncate_from_end(10)
        assert epochs.entries == [(2, 5)]
        assert epochs.latest == EpochEntry(2, 5)
        assert epochs.assign(7, 10)

    def test_from_the_start_keeps_the_epoch_of_the_first_offset(self) -> None:
        epochs = LeaderEpochs([(2, 5), (4, 10), (7, 20)])
        assert not epochs.truncate_from_start(4)
        assert not epochs.truncate_from_start(5)
        assert epochs.truncate_from_start(15)
        assert epochs.entries == [(4, 15), (7, 20)]
        assert epochs.earliest == EpochEntry(4, 15)
        assert epochs.truncate_from_start(99)
        assert epochs.entries == [(7, 99)]
        assert not epochs.assign(7, 99)

    def test_clear(self) -> None:
        epochs = LeaderEpochs([(2, 5)])
        assert epochs.clear()
        assert not epochs.clear()
        assert (epochs.latest, epochs.earliest, epochs.latest_epoch) == (None, None, -1)
        assert epochs.assign(0, 0)


class NaiveEpochs:
    """The epoch of every single offset of a log."""

    def __init__(self) -> None:
        self.start = 0
        self.epoch_of: list[int] = []

    @property
    def end(self) -> int:
        return self.start + len(self.epoch_of)

    def first_offset_above(self, epoch: int) -> int:
        return next((self.start + i for i, found in enumerate(self.epoch_of) if found > epoch), self.end)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4)),  # epochs on, records
        st.tuples(st.just("cut_end"), st.integers(0, 12), st.just(0)),  # records less
        st.tuples(st.just("cut_start"), st.integers(0, 12), st.just(0)),
    ),
    max_size=25,
)


@given(steps)
def test_agrees_with_a_log_that_knows_every_record(script: list[tuple[str, int, int]]) -> None:
    epochs, naive, current = LeaderEpochs(), NaiveEpochs(), 0
    for action, first, second in script:
        if action == "append":
            current += first
            epochs.assign(current, naive.end)
            naive.epoch_of += [current] * second
        elif action == "cut_end":
            end = max(naive.start, naive.end - first)
            del naive.epoch_of[end - naive.start :]
            epochs.truncate_from_end(end)
            current += 1  # nobody writes on in an epoch that was cut
        else:
            start = min(naive.end, naive.start + first)
            if start == naive.end:
                continue  # then the cache still knows the last epoch, which no record shows
            del naive.epoch_of[: start - naive.start]
            naive.start = start
            epochs.truncate_from_start(start)
        for offset in range(naive.start, naive.end):
            assert epochs.epoch_for_offset(offset) == naive.epoch_of[offset - naive.start]
        for epoch in range(current + 2):
            known = [each for each in naive.epoch_of if each <= epoch]
            if not naive.epoch_of or epoch > naive.epoch_of[-1]:
                expected = (-1, -1)
            else:
                expected = (known[-1] if known else epoch, naive.first_offset_above(epoch))
            assert epochs.end_offset_for(epoch, naive.end) == expected


class TestFile:
    def test_bytes(self) -> None:
        disk = disk_with()
        save_leader_epochs(disk, "t-0", epochs := LeaderEpochs())
        assert not disk.exists("t-0/leader-epoch-checkpoint")  # nothing to say
        epochs.assign(0, 0)
        epochs.assign(12, 345)
        save_leader_epochs(disk, "t-0", epochs)
        assert not epochs.dirty
        assert read_file(disk, "t-0/leader-epoch-checkpoint") == b"0\n2\n0 0\n12 345\n"
        assert load_leader_epochs(disk, "t-0").entries == epochs.entries
        assert not load_leader_epochs(disk, "t-0").dirty

    def test_a_missing_or_empty_file_knows_nothing(self) -> None:
        disk = disk_with()
        assert load_leader_epochs(disk, "t-0").entries == []
        disk.open("t-0/leader-epoch-checkpoint", create=True).close()
        assert load_leader_epochs(disk, "t-0").entries == []

    def test_a_bad_line_is_named(self) -> None:
        disk = disk_with()
        disk.open("t-0/leader-epoch-checkpoint", create=True).write_at(0, b"0\n2\n0 0\n1 x\n")
        with pytest.raises(
            CorruptLogError, match="t-0/leader-epoch-checkpoint, line 4: '1 x' is not an epoch and an offset"
        ):
            load_leader_epochs(disk, "t-0")

    @pytest.mark.parametrize("seed", range(10))
    def test_a_crash_leaves_the_old_or_the_new(self, seed: int) -> None:
        for operation in range(1, 20):
            disk = SimulatedDisk(random.Random(seed))
            disk.make_directory("t-0")
            disk.sync_directory("")
            epochs = LeaderEpochs()
            epochs.assign(1, 0)
            save_leader_epochs(disk, "t-0", epochs)
            old, before = epochs.entries, disk.operations
            disk.crash_at(before + operation)
            epochs.assign(2, 10)
            try:
                save_leader_epochs(disk, "t-0", epochs)
            except SimulatedCrash:
                disk.crash()
                assert load_leader_epochs(disk, "t-0").entries in (old, epochs.entries)
            else:
                disk.crash()
                assert load_leader_epochs(disk, "t-0").entries == epochs.entries
                return
        pytest.fail("saving never finished")


@needs_kafka()
def test_kafka_does_the_same(tmp_path: Path) -> None:
    randomness = random.Random(7)
    script, ours = [], []
    for _ in range(60):
        script.append("epochs")
        ours.append("ok")
        disk = disk_with()
        epochs = LeaderEpochs()
        for _ in range(15):
            low, high = randomness.randrange(8), randomness.randrange(40)
            command = randomness.choice(
                ["assign", "assign", "assign", "end_offset", "epoch_at", "cut_end", "cut_start"]
            )
            script.append(f"{command} {low if command in ('assign', 'end_offset') else high} {high}")
            if command == "end_offset":
                epoch, offset = epochs.end_offset_for(low, high)
                ours.append(f"{epoch}={offset}")
            elif command == "epoch_at":
                found = epochs.epoch_for_offset(high)
                ours.append("none" if found is None else str(found))
            else:
                if command == "assign":
                    epochs.assign(low, high)
                elif command == "cut_end":
                    epochs.truncate_from_end(high)
                else:
                    epochs.truncate_from_start(high)
                save_leader_epochs(disk, "t-0", epochs)
                path = "t-0/leader-epoch-checkpoint"
                # Kafka makes the file at once, and empty.
                ours.append((read_file(disk, path).hex() if disk.exists(path) else "") + ".")
        if disk.exists("t-0/leader-epoch-checkpoint"):
            script.append("read_epochs " + read_file(disk, "t-0/leader-epoch-checkpoint").hex())
            ours.append(",".join(f"{epoch}:{start}" for epoch, start in epochs.entries))
    theirs = run_java("PartitionState.java", "\n".join(script), arguments=(str(tmp_path),)).splitlines()
    assert list(zip(script, theirs, strict=True)) == list(zip(script, ours, strict=True))
