"""Three nodes of Kafka are replaced by ours one after the other, on the same directories, and back; clients go on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.cluster.records import GroupReader, LibrdkafkaSender, OurSender, check, read_all
from tests.oracles import needs_kafka
from tests.peers.nodes import Kind, PeerCluster
from tests.peers.replicas import SETTINGS, TOPIC, Replicas, assert_same_segments

pytestmark = [needs_kafka(), pytest.mark.slow]

NODES = (1, 2, 3)
THREE = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}


def test_kafka_is_replaced_by_ours_and_back_while_clients_run(tmp_path: Path) -> None:
    with PeerCluster(tmp_path, dict.fromkeys(NODES, "broker,controller"), SETTINGS) as cluster:
        cluster.start(dict.fromkeys(NODES, Kind.KAFKA))
        bootstrap = cluster.bootstrap
        replicas = Replicas(cluster)
        replicas.create(THREE, min_in_sync=2)
        everybody = {each: set(NODES) for each in THREE}
        with contextlib.ExitStack() as sending, GroupReader(bootstrap, TOPIC) as reader:
            senders = [
                sending.enter_context(kind(bootstrap, TOPIC, len(THREE))) for kind in (LibrdkafkaSender, OurSender)
            ]
            for kind in (Kind.OURS, Kind.KAFKA):
                for node_id in NODES:
                    cluster[node_id].stop()
                    replicas.until_led_by(set(NODES) - {node_id})
                    cluster.start({node_id: kind})
                    replicas.until_in_sync(everybody)
                    replicas.elect_preferred()
            sending.close()
            acknowledged = {value for sender in senders for _, _, value in sender.acknowledged}
            reader.finish(acknowledged)
        assert all(not each.failures for each in senders), [each.failures[:2] for each in senders]
        assert check(read_all(bootstrap, TOPIC, len(THREE)), senders) > 1000
        assert reader.committed() == reader.positions
        replicas.until_in_sync(everybody)
        # The last of three has no majority that would let it go.
        cluster.stop(NODES[:2])
        cluster[NODES[2]].kill()
    assert assert_same_segments(cluster, TOPIC, THREE, NODES) > 0
    assert cluster.complaints() == []
