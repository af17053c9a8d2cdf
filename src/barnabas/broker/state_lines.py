"""What a node tells of brokers and partitions: who came, was fenced or goes, who leads what, and why.

As in `change_lines` it is told from the difference of two images. Why a leader changed is not in a record, but follows
from what became of the one before. Of partitions a broker tells those that it has, as Kafka's state.change.logger; of a
cluster of one broker nothing: it leads as a matter of course. The active controller tells what no broker in its process
does: of a partition that lost its only replica nobody else is left to tell.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.broker.configs.logger_levels import STATE_CHANGE_LOG
from barnabas.broker.told_names import MOST_LINES, names_text
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage
from barnabas.metadata.loader import MetadataUpdate
from barnabas.metadata.partition_changes import RECOVERING
from barnabas.raft.types import LeaderAndEpoch

_log = logger("barnabas.broker")
_partition_log = logger(STATE_CHANGE_LOG)
_controller_log = logger("barnabas.controller")

#: Whether a partition is told of, by what it was and is.
_Choice = Callable[[PartitionImage, PartitionImage], bool]


def tell_states(before: ClusterImage, after: ClusterImage, delta: ClusterDelta, node_id: int) -> None:
    """Log what became of brokers, and of the partitions of which this node has a replica."""
    if before.offset < 0 or len(after.brokers) < 2:
        return
    for line in broker_lines(before, after, delta):
        _log.info("%s", line)
    own, was = after.brokers.get(node_id), before.brokers.get(node_id)
    if _is_fenced_by_others(own, was):
        _log.warning("This broker was fenced: the controllers have not heard of it for too long. It asks to be let in")
    _tell_partitions(before, after, delta, lambda was, now: node_id in now.replicas)


def tell_states_as_controller(
    before: ClusterImage, after: ClusterImage, delta: ClusterDelta, own_broker: int | None
) -> None:
    """Log, at the active controller, what its own broker does not: of partitions of others those that lack a leader,
    did so, or may have lost records. Where it has no broker, it tells all."""
    if before.offset < 0:
        return
    if own_broker is None:
        for line in broker_lines(before, after, delta):
            _controller_log.info("%s", line)
        _tell_partitions(before, after, delta, lambda was, now: True)
    elif len(after.brokers) > 1:
        _tell_partitions(
            before, after, delta, lambda was, now: own_broker not in now.replicas and (_lacks(was) or _lacks(now))
        )


def _lacks(partition: PartitionImage) -> bool:
    """Whether it lacks a leader, or perhaps records."""
    return partition.leader == NO_LEADER or partition.leader_recovery_state == RECOVERING


def _is_being_stopped(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.in_controlled_shutdown


def _tell_partitions(before: ClusterImage, after: ClusterImage, delta: ClusterDelta, chosen: _Choice) -> None:
    changes = _changed(before, after, delta, chosen)
    for level, line in leader_lines(after, changes):
        _partition_log.log(level, "%s", line)
    for line in isr_lines(after, changes):
        _partition_log.info("%s", line)


def _is_fenced_by_others(now: BrokerImage | None, was: BrokerImage | None) -> bool:
    if now is None or was is None or now.epoch != was.epoch:
        return False
    return now.is_fenced and not was.is_fenced and not now.in_controlled_shutdown


def broker_lines(before: ClusterImage, after: ClusterImage, delta: ClusterDelta) -> list[str]:
    lines = []
    for number in dict.fromkeys(delta.brokers_changed):
        text = _broker_text(before.brokers.get(number), after.brokers.get(number))
        if text is not None:
            lines.append(f"Broker {number} {text}")
    return lines


def _broker_text(was: BrokerImage | None, now: BrokerImage | None) -> str | None:
    """What became of it; None if that matters to nobody here."""
    if now is None:
        return None if was is None else "was unregistered"
    if was is None or was.epoch != now.epoch:
        where = ", ".join(f"{each.listener}://{each.host}:{each.port}" for each in now.endpoints)
        again = "" if was is None else " again"
        return f"has registered{again}, in epoch {now.epoch}, at {where}"
    if now.is_fenced and not was.is_fenced:
        if was.in_controlled_shutdown or now.in_controlled_shutdown:
            return "is fenced: it has shut down"
        return "is fenced: the controllers do not hear of it any more, or its process has ended"
    if was.is_fenced and not now.is_fenced:
        return "is unfenced: it has caught up, and clients are sent to it"
    if now.in_controlled_shutdown and not was.in_controlled_shutdown:
        return "is shutting down: others lead what it led"
    return None


def leader_lines(
    after: ClusterImage, changed: Sequence[tuple[str, PartitionImage, PartitionImage]]
) -> list[tuple[int, str]]:
    """Of partitions that have another leader than before, with the level; those that are new are told with their
    topic."""
    by_reason: dict[tuple[int, str], list[tuple[str, PartitionImage]]] = {}
    count = 0
    for name, was, now in changed:
        if was.leader != now.leader:
            count += 1
            is_bad = _lacks(now) and not (now.leader == NO_LEADER and _is_being_stopped(after, was.leader))
            level = logging.WARNING if is_bad else logging.INFO
            by_reason.setdefault((level, _election_text(after, was, now)), []).append((name, now))
    if count <= MOST_LINES:
        return [
            (level, f"{name}: {reason}; leader epoch {now.leader_epoch}, ISR {_listed(now.isr)}")
            for (level, reason), changes in by_reason.items()
            for name, now in changes
        ]
    return [
        (level, f"{_partitions(len(changes))}: {reason}: {names_text(name for name, _ in changes)}")
        for (level, reason), changes in by_reason.items()
    ]


def isr_lines(after: ClusterImage, changed: Sequence[tuple[str, PartitionImage, PartitionImage]]) -> list[str]:
    """Of partitions out of whose ISR the controller took brokers that are gone. What leaders propose, they tell."""
    by_reason: dict[str, list[tuple[str, PartitionImage]]] = {}
    for name, was, now in changed:
        gone = [each for each in was.isr if each not in now.isr and _state(after, each) is not None]
        if was.leader == now.leader and gone:
            reason = ", ".join(f"broker {each} {_state(after, each)}" for each in gone)
            by_reason.setdefault(reason, []).append((name, now))
    if sum(map(len, by_reason.values())) <= MOST_LINES:
        return [
            f"{name}: the ISR is {_listed(now.isr)}, since {reason}"
            for reason, changes in by_reason.items()
            for name, now in changes
        ]
    return [
        f"{_partitions(len(changes))}: the ISR shrank, since {reason}: {names_text(name for name, _ in changes)}"
        for reason, changes in by_reason.items()
    ]


def _changed(
    before: ClusterImage, after: ClusterImage, delta: ClusterDelta, chosen: _Choice
) -> list[tuple[str, PartitionImage, PartitionImage]]:
    created = frozenset(delta.topics_created)
    found = []
    for name in delta.partitions_changed:
        if name.topic in created:
            continue
        was, now = before.partition(*name), after.partition(*name)
        if was is not None and now is not None and chosen(was, now):
            found.append((str(TopicPartition(*name)), was, now))
    return found


def _election_text(after: ClusterImage, was: PartitionImage, now: PartitionImage) -> str:
    """Who leads now, and why it is not the one before."""
    if now.leader == NO_LEADER:
        return f"nobody leads, since {_lost_leader(after, was)}"
    if was.leader == NO_LEADER:
        reason = "one that may lead is there again"
    elif _state(after, was.leader) is not None:
        reason = f"broker {was.leader} {_state(after, was.leader)}"
    elif was.leader not in now.replicas:
        reason = f"broker {was.leader} has no replica any more"
    elif now.replicas and now.leader == now.replicas[0]:
        reason = f"it is the preferred leader, instead of broker {was.leader}"
    elif was.leader not in now.isr:
        reason = f"broker {was.leader} is out of sync"
    else:
        reason = f"an election was asked for, instead of broker {was.leader}"
    unclean = ", uncleanly: records may be lost" if now.leader_recovery_state == RECOVERING else ""
    return f"broker {now.leader} leads{unclean}, since {reason}"


def _lost_leader(after: ClusterImage, was: PartitionImage) -> str:
    state = _state(after, was.leader)
    return f"broker {was.leader} {state or 'does not'} and nobody else is in sync"


def _state(image: ClusterImage, broker_id: int) -> str | None:
    """What keeps a broker from leading; None if nothing does."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return "was unregistered"
    if broker.in_controlled_shutdown:
        return "is shutting down"
    return "is fenced" if broker.is_fenced else None


def _partitions(count: int) -> str:
    return f"{count:,} partition{'' if count == 1 else 's'}"


def _listed(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "empty"


class ControllerChanges:
    """Tells who leads the controllers, on a node that is none: those tell it themselves."""

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Nothing: the broker tells what it applies."""

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id >= 0:
            _log.info("Controller %d is the active one now, in epoch %d", leader.leader_id, leader.epoch)
        else:
            _log.info("No controller is active, as far as is known here, in epoch %d", leader.epoch)
