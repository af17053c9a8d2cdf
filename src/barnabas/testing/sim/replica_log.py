"""The logs of replicas as they lie on disks: which batches there are, and whose.

Read beside the node, so that what it says of its log can be held against what is there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from barnabas.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from barnabas.storage.segment import LOG_SUFFIX
from barnabas.testing.sim.disk import SimulatedDisk

__all__ = ["HEADER_BYTES", "ReplicaLog", "SeenBatch"]

#: Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and last timestamp, producer
#: id, producer epoch, first sequence, record count.
_HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = _HEADER.size
_FRAME_BYTES: Final = 12
_ATTRIBUTES: Final = slice(21, 23)
_NO_PRODUCER: Final = -1
_base_offset: Final = itemgetter(0)


class SeenBatch(NamedTuple):
    """A batch on a disk. The header has everything that the checksum does not cover, and the checksum."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    header: bytes
    file: str
    position: int
    size_bytes: int

    @property
    def is_transactional(self) -> bool:
        return bool(self._attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self._attributes & CONTROL_BIT)

    @property
    def _attributes(self) -> int:
        return int.from_bytes(self.header[_ATTRIBUTES], "big")

    @property
    def last_sequence(self) -> int:
        return self.base_sequence + self.last_offset - self.base_offset


class ReplicaLog:
    """The batches of one replica, as they lie on the disk of its host. `refresh` reads only what is new."""

    def __init__(self, disk: SimulatedDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.batches: list[SeenBatch] = []
        #: The same by producer.
        self.by_producer: dict[int, list[SeenBatch]] = {}
        #: How many of them are known to agree with what was committed.
        self.compared = 0
        self._seen_version = -1, -1

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def refresh(self) -> None:
        version = self._disk.version
        if version == self._seen_version:
            return
        self._seen_version = version
        files = self._disk.peek_files(self._directory)
        self._drop_what_is_gone(files)
        last = self.batches[-1] if self.batches else None
        for name in sorted(files):
            if name.endswith(LOG_SUFFIX) and (last is None or name >= last.file):
                begin = last.position + last.size_bytes if last is not None and name == last.file else 0
                self._read(name, files[name], begin)

    def _drop_what_is_gone(self, files: Mapping[str, bytearray]) -> None:
        """Batches are a chain: if the last is still where it was, so are all before it."""
        while self.batches:
            last = self.batches[-1]
            content = files.get(last.file)
            if content is not None and content[last.position : last.position + HEADER_BYTES] == last.header:
                break
            self.batches.pop()
            if last.producer_id != _NO_PRODUCER:
                self.by_producer[last.producer_id].pop()
        self.compared = min(self.compared, len(self.batches))

    def _read(self, name: str, content: bytearray, position: int) -> None:
        while position + HEADER_BYTES <= len(content):
            fields = _HEADER.unpack_from(content, position)
            base_offset, length, leader_epoch, delta = fields[0], fields[1], fields[2], fields[6]
            producer = fields[9], fields[10], fields[11]
            size_bytes = _FRAME_BYTES + length
            if size_bytes < HEADER_BYTES or position + size_bytes > len(content) or base_offset < self.end_offset:
                return
            header = bytes(content[position : position + HEADER_BYTES])
            batch = SeenBatch(
                base_offset, base_offset + delta, leader_epoch, *producer, header, name, position, size_bytes
            )
            self.batches.append(batch)
            if batch.producer_id != _NO_PRODUCER:
                self.by_producer.setdefault(batch.producer_id, []).append(batch)
            position += size_bytes

    def find(self, offset: int) -> SeenBatch | None:
        """The batch that holds an offset."""
        number = bisect_right(self.batches, offset, key=_base_offset) - 1
        if number < 0 or self.batches[number].last_offset < offset:
            return None
        return self.batches[number]

    def start_of_epoch(self, leader_epoch: int) -> int:
        """Where the log ended when that epoch began, by its batches."""
        number = bisect_left(self.batches, leader_epoch, key=lambda batch: batch.leader_epoch)
        return self.batches[number].base_offset if number < len(self.batches) else self.end_offset

    def data(self) -> bytes:
        """All batches, one after the other."""
        return b"".join(map(self.content, self.batches))

    def content(self, batch: SeenBatch) -> bytes:
        """The whole of a batch."""
        content = self._disk.peek(f"{self._directory}/{batch.file}") or bytearray()
        return bytes(content[batch.position : batch.position + batch.size_bytes])
