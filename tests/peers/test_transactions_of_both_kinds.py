"""Orders are worked off in transactions while coordinators and leaders move between our nodes and Kafka's.

How often they move is 2, or what BARNABAS_MOVES says:

    BARNABAS_MOVES=20 .venv/bin/python -m pytest -m slow tests/peers/test_transactions_of_both_kinds.py
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.transaction_faults import Orders, Progress, Workers, check, create_topics, read_totals
from tests.cluster.transaction_worker import ORDERS, TOTALS
from tests.oracles import needs_kafka
from tests.peers.nodes import Kind, PeerCluster
from tests.peers.replicas import SETTINGS, Replicas, assert_same_segments
from tests.peers.transactions import OFFSETS, STATES

pytestmark = [needs_kafka(), pytest.mark.slow]

MOVES = int(os.environ.get("BARNABAS_MOVES", "2"))
TRANSACTIONS = SETTINGS | {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
TWO_OF_OURS = {10: Kind.OURS, 11: Kind.KAFKA, 12: Kind.OURS}
TWO_OF_KAFKAS = {10: Kind.KAFKA, 11: Kind.OURS, 12: Kind.KAFKA}


@pytest.mark.parametrize(
    ("controller", "brokers", "transaction_version"),
    [(Kind.OURS, TWO_OF_OURS, 2), (Kind.KAFKA, TWO_OF_KAFKAS, 2), (Kind.OURS, TWO_OF_KAFKAS, 0)],
    ids=["two of ours", "two of Kafka's", "two of Kafka's, without v2"],
)
def test_orders_are_worked_off_once(
    tmp_path: Path, controller: Kind, brokers: Mapping[int, Kind], transaction_version: int
) -> None:
    """Clients of both kinds, which abort at times; nodes stop and are killed by turns."""
    roles = {1: "controller"} | dict.fromkeys(brokers, "broker")
    with PeerCluster(tmp_path, roles, TRANSACTIONS, transaction_version=transaction_version) as cluster:
        cluster.start({1: controller, **brokers})
        create_topics(cluster.bootstrap)
        topics = [Replicas(cluster, each) for each in (ORDERS, TOTALS, STATES, OFFSETS)]
        everybody = {each: set(brokers) for each in range(3)}
        with Workers(cluster.bootstrap, tmp_path) as workers, Orders(cluster.bootstrap) as orders:
            progress = Progress(cluster.bootstrap, workers)
            progress.until_worked_off()
            for move in range(MOVES):
                victim = list(brokers)[move % 3]
                if move % 2:
                    cluster[victim].kill()
                else:
                    cluster[victim].stop()
                for each in topics:
                    each.until_led_by(set(brokers) - {victim})
                # Soon: librdkafka waits for the coordinator of a group that is gone (its issue 5511), at times until
                # its process is ended for that (`transaction_worker`).
                cluster.start({victim: brokers[victim]})
                for each in topics:
                    each.until_in_sync(everybody)
                    each.elect_preferred()
                progress.until_worked_off()
            orders.finish()
            progress.until_worked_off()
            assert progress.committed() == progress.ends()
            progress.close()
        assert not orders.failures, orders.failures[:3]
        check(read_totals(cluster.bootstrap), orders.count)
        for each in topics:
            each.until_in_sync(everybody)
    for each in topics:
        assert_same_segments(cluster, each.topic, range(3), brokers, is_quiet=each.topic in (ORDERS, TOTALS))
    assert cluster.complaints() == []
