"""Random stories of producers and coordinators, told to Kafka's own code and to ours: the answers must be the same."""

from __future__ import annotations

import random
from pathlib import Path

from barnabas.records.batch import BatchView
from barnabas.storage.errors import AppendRefusedError
from barnabas.storage.files import read_file
from barnabas.storage.producer_snapshot import ProducerSnapshots, encode_snapshot
from tests.oracles import needs_kafka, run_java
from tests.storage.producers import MAX, Story, data, marker, new_disk


class KafkaStory(Story):
    """A story with a directory, told in the lines that the Java program answers and would have to answer."""

    EXPIRATION_MS = 10_000

    def __init__(self, randomness: random.Random) -> None:
        super().__init__()
        self.randomness = randomness
        self.disk = new_disk()
        self.snapshots = ProducerSnapshots(self.disk, "t-0")
        self.start = 0
        self.sent: dict[int, list[BatchView]] = {}
        self.lines = [(f"producers {self.EXPIRATION_MS}", "ok")]

    @property
    def unstable(self) -> str:
        offset = self.states.first_unstable_offset
        return "none" if offset is None else str(offset)

    def _data(self) -> BatchView:
        pick = self.randomness.choice
        pid = self.randomness.randrange(4)
        sent = self.sent.get(pid)
        last = sent[-1] if sent else None
        if sent and pick([True] + [False] * 5) and (again := pick(sent[-7:])).base_sequence >= 0:
            return data(
                again.base_sequence,
                again.record_count,
                pid=pid,
                epoch=again.producer_epoch,
                offset=self.end,
                transactional=again.is_transactional,
            )
        epoch = max((last.producer_epoch if last else 1) + pick([0] * 12 + [1, -1]), 0)
        if last is None:
            sequence = pick([0, 5, MAX - 4])
        elif pick([True] * 6 + [False]):
            sequence = 0 if epoch > last.producer_epoch else (last.last_sequence + 1) % (MAX + 1)
        else:
            sequence = (last.base_sequence + pick([0, 0, 1, 3, -1])) % (MAX + 1)
        timestamp_ms = self.randomness.randrange(1000, 9000)
        # Mostly one kind for each producer, or hardly anything would be accepted.
        transactional = pid % 2 == 0 if pick([True] * 9 + [False]) else pid % 2 == 1
        return data(
            sequence,
            pick([1, 1, 2, 4]),
            pid=pid,
            epoch=epoch,
            offset=self.end,
            timestamp_ms=timestamp_ms,
            transactional=transactional,
        )

    def _marker(self) -> BatchView:
        pick = self.randomness.choice
        pid = self.randomness.randrange(4)
        sent = self.sent.get(pid)
        epoch = max((sent[-1].producer_epoch if sent else 1) + pick([0, 0, 0, 1, 1, -1]), 0)
        return marker(
            commit=pick([True, False]),
            pid=pid,
            epoch=epoch,
            coordinator_epoch=pick([3, 3, 3, 4, 2]),
            offset=self.end,
            timestamp_ms=self.randomness.randrange(1000, 9000),
        )

    def step(self) -> None:
        command = self.randomness.choice(
            ["client"] * 12 + ["offsets", "replica"] + ["marker"] * 5 + ["watermark"] * 2
            + ["start", "expire", "snapshot", "snapshot", "reload"]
        )  # fmt: skip
        match command:
            case "client":
                self._append(self._data(), "client")
            case "offsets":
                batch = self._data()
                batch.stamp_producer(
                    producer_id=batch.producer_id, producer_epoch=batch.producer_epoch, base_sequence=-1
                )
                self._append(batch, "coordinator 0")
            case "replica":
                batch = self._data()
                if batch.is_transactional:  # Kafka refuses others in a transaction even then
                    self._append(batch, "replica")
            case "marker":
                self._append(self._marker(), f"coordinator {self.randomness.choice([0, 1, 2])}")
            case "watermark":
                offset = self.randomness.randrange(self.end + 1)
                self.states.on_high_watermark(offset)
                self.lines.append((f"watermark {offset}", f"ok {self.unstable}"))
            case "start":
                self.start = self.randomness.randrange(self.start, self.end + 1)
                self.states.on_log_start(self.start)
                self.lines.append((f"start {self.start}", f"ok {self.unstable}"))
            case "expire":
                now_ms = self.randomness.randrange(10_000, 20_000)
                self.states.expire(now_ms, self.EXPIRATION_MS)
                self.lines.append((f"expire {now_ms}", f"left {len(self.states)}"))
            case "snapshot" if self.end > max([self.start, *self.snapshots.offsets]):
                self.snapshots.take(self.states, self.end)
                self.lines.append(("snapshot", read_file(self.disk, self.snapshots.path(self.end)).hex() + "."))
            case "reload" if self.end > self.start:
                self._reload()

    def _append(self, batch: BatchView, how: str) -> None:
        line = f"{how} {bytes(batch.data).hex()}"
        offset = self.end
        try:
            if how == "client":
                duplicate = self.states.check(batch)
                if duplicate is not None:
                    self.lines.append((line, "duplicate {} {} {} ".format(*duplicate) + self.unstable))
                    return
            elif how != "replica":
                self.states.check_from_coordinator(batch, int(how[-1]))
        except AppendRefusedError as refusal:
            self.lines.append((line, f"refused {refusal.code.name}"))
            return
        ended = self.states.apply(batch)
        self.end = batch.next_offset
        assert batch.base_offset == offset
        answer = "ok"
        if ended is not None:
            outcome = "aborted" if ended.is_aborted else "committed"
            fields = ended.producer_id, ended.first_offset, ended.last_offset, outcome, ended.last_stable_offset
            answer = " ".join(map(str, ("ended", *fields)))
        self.lines.append((line, f"{answer} {self.unstable}"))
        if not batch.is_control:
            self.sent.setdefault(batch.producer_id, []).append(batch)

    def _reload(self) -> None:
        end, now_ms = self.randomness.randrange(self.start + 1, self.end + 1), self.randomness.randrange(9000, 15_000)
        self.snapshots = ProducerSnapshots(self.disk, "t-0")
        self.end = self.snapshots.restore(self.states, self.start, end)
        self.states.expire(now_ms, self.EXPIRATION_MS)
        self.lines.append(
            (f"reload {self.start} {end} {now_ms} {self.EXPIRATION_MS}", f"from {self.end} {self.unstable}")
        )


def _snapshot_of_ours() -> tuple[str, str]:
    story = Story()
    story.send(data(MAX, 3, pid=5, epoch=7, transactional=True))
    story.end_transaction(pid=6, epoch=2, coordinator_epoch=4)
    content = encode_snapshot(story.states.entries())
    return f"read_snapshot {content.hex()}", f"5:7:-1:5000:0:{MAX}-1@0-2,6:2:4:6000:-1:"


@needs_kafka()
def test_kafka_decides_the_same(tmp_path: Path) -> None:
    expected: list[tuple[str, str]] = []
    for seed in range(150):
        story = KafkaStory(random.Random(seed))
        for _ in range(60):
            story.step()
        expected += story.lines
    expected.append(_snapshot_of_ours())
    script = "\n".join(command for command, _ in expected)
    theirs = run_java("PartitionState.java", script, arguments=(str(tmp_path),)).splitlines()
    for number, ((command, ours), their) in enumerate(zip(expected, theirs, strict=True)):
        assert ours == their, f"line {number}: {command}"
    # The test is worth something only if each kind of answer came often.
    for answer in (
        "ok",
        "duplicate",
        "ended",
        "refused INVALID_PRODUCER_EPOCH",
        "refused OUT_OF_ORDER_SEQUENCE_NUMBER",
        "refused INVALID_TXN_STATE",
        "refused TRANSACTION_COORDINATOR_FENCED",
        "from",
        "0001",
    ):
        assert sum(ours.startswith(answer) for _, ours in expected) > 50, answer
