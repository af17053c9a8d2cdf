"""The click stream on its way into the topics: a thread that writes as many records in a second as it is asked for."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from barnabas import Admin, NewTopic, Producer
from barnabas.spark.demo.story import Records, Story

CLICKS: Final = "clicks"
USERS: Final = "users"
SESSIONS: Final = "sessions"
DEAD_LETTERS: Final = "clicks.dead"

_TOPICS: Final = (
    NewTopic(CLICKS, num_partitions=2),
    NewTopic(USERS, configs={"cleanup.policy": "compact"}),
    NewTopic(SESSIONS, num_partitions=2),
    NewTopic(DEAD_LETTERS),
)
_PACE_S: Final = 0.1
#: Long enough for any cluster that is there.
_CONNECTING_S: Final = 15.0
_LAST_CLICKS_S: Final = 10.0
_CLICKS_PER_CHANGE: Final = 100
_LARGEST_BATCH: Final = 20_000
_TREND_LENGTH: Final = 60
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


def create_topics(bootstrap_servers: str, timeout_s: float = _CONNECTING_S) -> None:
    """The topics of the example project; those that are there stay as they are."""
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        known = set(admin.list_topics(timeout=timeout_s))
        admin.create_topics([topic for topic in _TOPICS if topic.name not in known])


def write_clicks(
    bootstrap_servers: str, *, rate: float, seed: int, seconds: float | None, told_to_stop: threading.Event
) -> WrittenClicks:
    """Write clicks into topics that are there, until it is enough or they cannot be written."""
    writer = ClickWriter(Story(seed=seed, rate=rate, start_ms=story_start_ms()), bootstrap_servers, rate=rate)
    end_s = None if seconds is None else time.monotonic() + seconds
    writer.start()
    while writer.failure is None and (end_s is None or time.monotonic() < end_s) and not told_to_stop.wait(_PACE_S):
        pass
    writer.stop()
    return writer.written


def story_start_ms() -> int:
    """Yesterday on the hour: the story runs faster than our clock, and needs some minutes to overtake it."""
    return (int(time.time() * 1000) - _DAY_MS) // _HOUR_MS * _HOUR_MS


@dataclass(slots=True)
class WrittenClicks:
    """What is in the topics, acknowledged."""

    clicks: int = 0
    valid: int = 0
    user_records: int = 0
    #: Who is registered now, and who was: users whose last record is a tombstone.
    users: int = 0
    users_gone: int = 0
    #: Clicks of each of the last seconds.
    trend: deque[int] = field(default_factory=lambda: deque(maxlen=_TREND_LENGTH))

    @property
    def broken(self) -> int:
        return self.clicks - self.valid


class ClickWriter:
    """Writes a story, from `start` to `stop`. `written` may be looked at meanwhile."""

    def __init__(self, story: Story, bootstrap_servers: str, *, rate: float) -> None:
        self.written = WrittenClicks()
        self.failure: BaseException | None = None
        self._story = story
        self._rate = rate
        self._known_users: set[str] = set()
        self._gone_users: set[str] = set()
        self._producer = Producer(bootstrap_servers=bootstrap_servers, compression_type="zstd", client_id="clicks")
        self._told_to_stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clicks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when all that was begun is written, or when the cluster has not taken it for a while. Stopping again
        does nothing. Raises what broke it off."""
        self._told_to_stop.set()
        self._thread.join(_LAST_CLICKS_S)
        self._producer.close(timeout=0)
        # What it waited for has failed by now.
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._send_users(self._story.first_users())
            self._write()
        except BaseException as failure:
            # The thread ends here; whoever stops it hears why.
            self.failure = failure

    def _write(self) -> None:
        begun_s = counted_s = time.monotonic()
        counted = 0
        while not self._told_to_stop.wait(_PACE_S):
            due = int((time.monotonic() - begun_s) * self._rate) - self.written.clicks
            self._send_clicks(min(max(due, 0), _LARGEST_BATCH))
            changes = self.written.clicks // _CLICKS_PER_CHANGE - (self.written.user_records - len(self._story.users))
            self._send_users(self._story.changed_users(max(changes, 0)))
            if time.monotonic() >= counted_s + 1:
                self.written.trend.append(self.written.clicks - counted)
                counted, counted_s = self.written.clicks, counted_s + 1

    def _send_clicks(self, count: int) -> None:
        records = self._story.clicks(count)
        self._send(CLICKS, records)
        self.written.clicks += count
        self.written.valid += len(records.clicks)

    def _send_users(self, records: Records) -> None:
        self._send(USERS, records)
        for user, value in zip(records.keys, records.values, strict=True):
            self._known_users.add(user)
            (self._gone_users.add if value is None else self._gone_users.discard)(user)
        self.written.user_records += len(records)
        self.written.users = len(self._known_users) - len(self._gone_users)
        self.written.users_gone = len(self._gone_users)

    def _send(self, topic: str, records: Records) -> None:
        if len(records):
            table = pa.table({"key": records.keys, "value": pa.array(records.values, pa.binary())})
            self._producer.send_arrow(topic, table).result()
