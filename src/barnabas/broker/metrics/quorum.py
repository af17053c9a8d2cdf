"""The replica of the metadata log (Kafka's raft-metrics)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.base.metrics.exposition import Exposition, Family, labels
from barnabas.broker.metrics.naming import of_mbean, own
from barnabas.broker.metrics.sources import NodeParts


def _raft(attribute: str, text: str) -> Family:
    return of_mbean(f"kafka.server:type=raft-metrics#{attribute}", "gauge", text)


STATE: Final = _raft("current-state", "1, with the state as a label: leader, follower, candidate, observer, …")
LEADER: Final = _raft("current-leader", "Who leads, or -1.")
VOTE: Final = _raft("current-vote", "Whom this replica voted for in this epoch, or -1.")
EPOCH: Final = _raft("current-epoch", "The epoch.")
HIGH_WATERMARK: Final = _raft("high-watermark", "All before it is committed.")
END: Final = _raft("log-end-offset", "Where the log ends.")
END_EPOCH: Final = _raft("log-end-epoch", "The epoch of its last record.")
VOTERS: Final = _raft("number-of-voters", "Voters.")
OBSERVERS: Final = _raft("number-of-observers", "Observers; told by the leader.")
START: Final = own("raft_log_start_offset", "gauge", "Where the log of the metadata begins.")
LAG: Final = own("raft_replica_lag", "gauge", "Records that a replica lacks; told by the leader.")
FAMILIES: Final = (STATE, LEADER, VOTE, EPOCH, HIGH_WATERMARK, END, END_EPOCH, VOTERS, OBSERVERS, START, LAG)


def collect(parts: NodeParts, out: Exposition) -> Iterator[None]:
    quorum = parts.quorum
    if quorum is None or not quorum.is_open:
        return
    machine = quorum.driver.machine
    state = type(machine.state).__name__.lower()
    if state == "follower" and not machine.is_voter:
        state = "observer"
    out.add(STATE, 1, labels(state=state))
    out.add(LEADER, machine.leader.leader_id)
    out.add(VOTE, -1 if machine.voted is None else machine.voted.node_id)
    out.add(EPOCH, machine.epoch)
    out.add(HIGH_WATERMARK, quorum.high_watermark)
    out.add(END, quorum.log_end_offset)
    out.add(END_EPOCH, machine.log.last_epoch)
    out.add(VOTERS, len(machine.voters))
    out.add(START, quorum.log_start_offset)
    if state == "leader":
        described = quorum.describe()
        out.add(OBSERVERS, len(described.observers))
        for each in (*described.voters, *described.observers):
            lag = quorum.log_end_offset - max(0, each.log_end_offset)
            out.add(LAG, lag, labels(replica=each.replica_id))
    yield
