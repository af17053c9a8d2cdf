"""Which fetcher follows which partition: one for each leader, or several (`num.replica.fetchers`)."""

from __future__ import annotations

import asyncio
from zlib import crc32

from barnabas.base.ids import TopicPartition
from barnabas.broker.data.replica_fetcher import FollowerParts, ReplicaFetcher
from barnabas.metadata.image import ClusterImage
from barnabas.replication.follower_state import FollowerState
from barnabas.replication.partition import Partition

#: A leader, and which of the fetchers from it.
_FetcherKey = tuple[int, int]


class ReplicaFetcherManager:
    """Told of each partition whose role may have changed, and of where the brokers are."""

    def __init__(self, parts: FollowerParts) -> None:
        self._parts = parts
        self._listener = parts.settings.inter_broker_listener
        self._fetchers_per_leader = parts.settings.num_replica_fetchers
        self._fetchers: dict[_FetcherKey, ReplicaFetcher] = {}
        self._roles: dict[TopicPartition, FollowerState] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    @property
    def fetchers(self) -> list[ReplicaFetcher]:
        return list(self._fetchers.values())

    def update(self, partition: Partition) -> None:
        """Follow as the partition's role says, or stop to."""
        name, role = partition.name, partition.role
        known = self._roles.get(name)
        if known is role or self._is_stopped:
            return
        if known is not None:
            self._unfollow(name, known)
        if isinstance(role, FollowerState):
            self._roles[name] = role
            self._follow(name, role)

    def remove(self, partition: Partition) -> None:
        """The partition is deleted, or its log failed."""
        known = self._roles.get(partition.name)
        if known is not None and known.partition is partition:
            self._unfollow(partition.name, known)

    def update_brokers(self, image: ClusterImage, changed: tuple[int, ...]) -> None:
        """Brokers may be elsewhere than they were."""
        for broker_id in changed:
            broker = image.brokers.get(broker_id)
            endpoint = None if broker is None else broker.endpoint(self._listener)
            if endpoint is None:
                self._addresses.pop(broker_id, None)
            else:
                self._addresses[broker_id] = (endpoint.host, endpoint.port)
            self._move_fetchers(broker_id)

    def configure(self, fetchers_per_leader: int) -> None:
        """Another number of fetchers from now on: each partition is handed to the one that is due to have it."""
        if fetchers_per_leader == self._fetchers_per_leader or self._is_stopped:
            return
        self._fetchers_per_leader = fetchers_per_leader
        for key in list(self._fetchers):
            self._drop(key)
        for name, role in self._roles.items():
            self._follow(name, role)

    def stop_idle(self) -> None:
        """Let go of leaders that nothing is fetched from any more; after all partitions were updated."""
        for key in [key for key, fetcher in self._fetchers.items() if not len(fetcher)]:
            self._drop(key)

    async def stop(self) -> None:
        """Nothing is fetched any more."""
        self._is_stopped = True
        for key in list(self._fetchers):
            self._drop(key)
        await asyncio.gather(*self._stopping)

    def _key_of(self, name: TopicPartition, role: FollowerState) -> _FetcherKey:
        count = self._fetchers_per_leader
        # Not by `hash`, which differs from process to process.
        return role.leader_id, 0 if count == 1 else crc32(str(name).encode()) % count

    def _follow(self, name: TopicPartition, role: FollowerState) -> None:
        key = self._key_of(name, role)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            address = self._addresses.get(role.leader_id)
            if address is None:
                return  # until the metadata log says where the leader is
            fetcher = self._fetchers[key] = ReplicaFetcher(self._parts, *key, *address)
            fetcher.start()
        fetcher.add(role)

    def _unfollow(self, name: TopicPartition, role: FollowerState) -> None:
        del self._roles[name]
        fetcher = self._fetchers.get(self._key_of(name, role))
        if fetcher is not None:
            fetcher.remove(role)

    def _move_fetchers(self, broker_id: int) -> None:
        """Fetch from where the broker is now."""
        address = self._addresses.get(broker_id)
        moved = [
            key
            for key, fetcher in self._fetchers.items()
            if key[0] == broker_id and address is not None and fetcher.address != address
        ]
        for key in moved:
            self._drop(key)
        has_fetcher = any(key[0] == broker_id for key in self._fetchers)
        if moved or (address is not None and not has_fetcher):
            for name, role in self._roles.items():
                if role.leader_id == broker_id and not role.is_over:
                    self._follow(name, role)

    def _drop(self, key: _FetcherKey) -> None:
        fetcher = self._fetchers.pop(key)
        fetcher.cancel()
        task = asyncio.get_running_loop().create_task(fetcher.stop(), name=f"stop {fetcher!r}")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
