"""Managers of logs to test with."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.storage.files import FileSystem
from barnabas.storage.log import PartitionLog
from barnabas.storage.manager import LogManager
from barnabas.storage.validation import prepare_from_client
from tests.storage.logs import NOW_MS, batch, topic_settings
from tests.storage.runtime import InlineRuntime

A, B, C = TopicPartition("a", 0), TopicPartition("b-with-dash", 12), TopicPartition("c", 1)
TOPIC_ID = Uuid(bytes(range(16)))


def manager(files: FileSystem, *directories: str, runtime: InlineRuntime | None = None, **settings: Any) -> LogManager:
    return LogManager(
        files, directories or ("/one",), lambda topic: topic_settings(**settings), runtime or InlineRuntime()
    )


def started(files: FileSystem, *directories: str, **how: Any) -> LogManager:
    logs = manager(files, *directories, **how)
    asyncio.run(logs.start())
    return logs


def append(log: PartitionLog, *values: bytes) -> None:
    for value in values:
        log.append(prepare_from_client(batch([value]), log.settings, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    log.set_high_watermark(log.log_end_offset)
