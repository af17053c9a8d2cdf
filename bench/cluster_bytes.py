"""How many bytes one change of the metadata sends between controllers and brokers, by how many partitions there are.

Three controllers and a broker that follows them, each a process; what stands between them counts. The partitions are
those of a broker that exists for the controllers alone, so that no disk has to hold their logs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from tests.cluster.asking import active, all_unfenced, ask, until
from tests.cluster.nodes import Cluster
from tests.cluster.wires import Wires

from barnabas.base.ids import Uuid
from barnabas.metadata.features import SUPPORTED
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bench.measure import Result

SIZES: Final = (10, 1_000, 100_000)
QUICK_SIZES: Final = (10, 1_000)
CHANGES: Final = 5
_GHOST: Final = 20
_REAL: Final = 10
_PER_TOPIC: Final = 1_000
_QUIET_S: Final = 1.0
#: The ghost sends no heartbeats: its session must last for the whole run. Nothing is written while nothing changes.
_SETTINGS: Final = {
    "broker.session.timeout.ms": "3600000",
    "metadata.max.idle.interval.ms": "0",
    "broker.heartbeat.interval.ms": "600000",
}


def results(is_quick: bool) -> Iterator[Result]:
    found = measure(QUICK_SIZES if is_quick else SIZES)
    first = next(iter(found.values()))
    detail = "; ".join(f"{size:,} partitions: {count:,.0f} bytes" for size, count in found.items())
    last = list(found.values())[-1]
    yield Result("cluster: bytes that one new topic sends", first / last, 0.8, detail)


def measure(sizes: tuple[int, ...]) -> dict[int, float]:
    """The median bytes of a new topic with one partition, at each number of partitions."""
    with tempfile.TemporaryDirectory() as folder, Wires([1, 2, 3]) as wires:
        roles = dict.fromkeys((1, 2, 3), "controller") | {_REAL: "broker"}
        cluster = Cluster(Path(folder), roles, _SETTINGS, between=wires.addresses)
        wires.carry_to(cluster.controllers)
        with cluster:
            all_unfenced(cluster)
            leader, _ = active(cluster)
            _register_ghost(leader.controller, cluster.cluster_id)
            there, found = 0, {}
            for size in sizes:
                while there < size:
                    count = min(_PER_TOPIC, size - there)
                    _create(leader.controller, f"size-{size}-{there}", count)
                    there += count
                found[size] = statistics.median(
                    _bytes_of_change(wires, leader.controller, f"more-{size}-{each}") for each in range(CHANGES)
                )
                there += CHANGES
            return found


def _bytes_of_change(wires: Wires, controller: str, name: str) -> float:
    """Between two times at which all is quiet; what a quiet time sends is taken off."""
    _until_quiet(wires)
    began_s, before = time.monotonic(), wires.carried_bytes
    time.sleep(_QUIET_S)
    per_s = (wires.carried_bytes - before) / (time.monotonic() - began_s)
    began_s, before = time.monotonic(), wires.carried_bytes
    _create(controller, name, 1)
    time.sleep(_QUIET_S)
    return wires.carried_bytes - before - per_s * (time.monotonic() - began_s)


def _until_quiet(wires: Wires) -> None:
    """Fetches wait half a second each, so few bytes pass while nothing changes."""

    def is_quiet() -> bool:
        before = wires.carried_bytes
        time.sleep(_QUIET_S)
        return wires.carried_bytes - before < 10_000

    until("nothing changes any more", is_quiet, patience_s=120)


def _register_ghost(controller: str, cluster_id: str) -> None:
    registration = BrokerRegistrationRequest(
        broker_id=_GHOST,
        cluster_id=cluster_id,
        incarnation_id=Uuid(bytes(15) + b"\x07"),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED.items()
        ],
        rack=None,
        log_dirs=[Uuid(b"\x01" + bytes(14) + b"\x07")],
    )
    registered = cast(BrokerRegistrationResponse, ask(controller, registration))
    assert registered.error_code == 0, registered
    beat = BrokerHeartbeatRequest(
        broker_id=_GHOST,
        broker_epoch=registered.broker_epoch,
        current_metadata_offset=2**40,
        want_fence=False,
        want_shut_down=False,
    )
    answer = cast(BrokerHeartbeatResponse, ask(controller, beat))
    assert not answer.error_code, answer
    assert not answer.is_fenced, answer


def _create(controller: str, name: str, partitions: int) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=each, broker_ids=[_GHOST]) for each in range(partitions)]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    response = cast(CreateTopicsResponse, ask(controller, request, timeout_s=70))
    assert response.topics[0].error_code == 0, response
