"""What `storage accept-loss` does: the damaged partitions of a node that is stopped, shown and made usable again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.runtime import SystemClock
from barnabas.broker.configs.config_resources import effective_topic_settings
from barnabas.broker.quorum.metadata_log import metadata_log_directory
from barnabas.broker.settings import BrokerSettings
from barnabas.cli.metadata_tree import files_of, load_image
from barnabas.cli.output import print_table, say
from barnabas.metadata.image import ClusterImage
from barnabas.storage.acceptance import accept_loss
from barnabas.storage.checkpoints import NO_BROKER_EPOCH
from barnabas.storage.damage import Damage
from barnabas.storage.directories import LogDirectory, parse_partition_name
from barnabas.storage.errors import CorruptLogError, DirectoryInUseError
from barnabas.storage.real_files import RealFileSystem

_HEADINGS: Final = ("PARTITION", "FIRST-LOST", "LAST-LOST", "BYTES", "FILE", "WHY")
# A damaged compaction is taken back at first, and what it was made from judged then.
_MOST_ROUNDS: Final = 3


class Damaged(NamedTuple):
    """A partition with what it lacks, and where it lies."""

    directory: LogDirectory
    damage: Damage


class Losses:
    """The directories of a node, locked while this is open; afterwards they count as clean only if they did before."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._files = RealFileSystem()
        self._opened = ExitStack()
        self._image = ClusterImage()
        self._present: set[TopicPartition] = set()
        self._damaged: dict[TopicPartition, Damaged] = {}

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            directories = [self._open(path, opened) for path in self._settings.data_dirs]
            self._image, _ = load_image(files_of(Path(metadata_log_directory(self._settings))))
            self._judge(directories)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def _open(self, path: str, opened: ExitStack) -> LogDirectory:
        if not self._files.exists(path):
            raise BarnabasError(f"{path} does not exist")
        directory = LogDirectory(self._files, path, SystemClock().monotonic_ms)
        try:
            directory.open()
        except DirectoryInUseError:
            raise BarnabasError(f"a node is running on {path}; stop it first") from None
        opened.callback(
            lambda: directory.close(broker_epoch=directory.previous_broker_epoch, is_clean=directory.was_clean)
        )
        return directory

    def _judge(self, directories: Sequence[LogDirectory]) -> None:
        for directory in directories:
            for partition in directory.partitions():
                self._present.add(partition)
                damage = self._verdict(directory, partition)
                if damage is not None:
                    self._damaged[partition] = Damaged(directory, damage)
        for directory in directories:
            for partition, damage in directory.judge_missing().items():
                if partition not in self._present and self._is_ours(partition):
                    self._damaged[partition] = Damaged(directory, damage)

    def _verdict(self, directory: LogDirectory, partition: TopicPartition) -> Damage | None:
        return directory.judge(partition, effective_topic_settings(self._settings, self._image, partition.topic))

    def _is_ours(self, partition: TopicPartition) -> bool:
        state = self._image.partition(*partition)
        return state is not None and self._settings.node_id in state.replicas

    def choose(self, names: Sequence[str]) -> list[TopicPartition]:
        """The damaged partitions that are named, or all if none is."""
        chosen = []
        for name in names:
            partition = parse_partition_name(name)
            if partition is None:
                raise click.UsageError(f"{name} is not a partition; write it as its directory is called, as clicks-0")
            if partition in self._damaged:
                chosen.append(partition)
            elif partition in self._present:
                say(f"{partition} is not damaged.")
            else:
                raise BarnabasError(f"{partition} does not lie in {', '.join(self._settings.data_dirs)}")
        return list(dict.fromkeys(chosen)) if names else sorted(self._damaged)

    def show(self, partitions: Sequence[TopicPartition]) -> None:
        rows = [
            (each, loss.start_offset, loss.end_offset - 1, _bytes(loss.lost_bytes), loss.path, loss.reason)
            for each in partitions
            for loss in self._damaged[each].damage.losses
        ]
        if rows:
            print_table(_HEADINGS, rows)
        elif not self._damaged:
            say("No partition is damaged.")

    def accept(self, partition: TopicPartition) -> None:
        """Make a partition usable. What its checkpoints say stays true: it goes on behind what was lost."""
        directory, damage = self._damaged[partition]
        next_offset = directory.highest_known_offset(partition)
        # Another replica may have what is lost here: to the controller this broker was not stopped cleanly.
        directory.previous_broker_epoch = NO_BROKER_EPOCH
        left: Damage | None = damage
        for _ in range(_MOST_ROUNDS):
            if left is None:
                return
            accept_loss(self._files, left, next_offset)
            left = self._verdict(directory, partition)
        if left is not None:
            raise CorruptLogError(left.directory, 0, f"it is still damaged: {left}")


def _bytes(count: int | None) -> str:
    return "unknown" if count is None else str(count)
