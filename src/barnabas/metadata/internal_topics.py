"""What topics look like that come about on first use: internal ones, and those that clients just name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopicOptions:
    """Settings of a broker for its coordinators' topics, by their names there."""

    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_segment_bytes: int = 104_857_600
    transaction_state_log_min_isr: int = 2


def creatable_topic(name: str, options: InternalTopicOptions) -> CreatableTopic:
    """The topic as it is to be created on first use."""
    if name == CONSUMER_OFFSETS:
        return _topic(
            name,
            options.offsets_topic_num_partitions,
            options.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(options.offsets_topic_segment_bytes),
                "compression.type": "producer",
            },
        )
    if name == TRANSACTION_STATE:
        return _topic(
            name,
            options.transaction_state_log_num_partitions,
            options.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(options.transaction_state_log_segment_bytes),
                "compression.type": "uncompressed",
                "min.insync.replicas": str(options.transaction_state_log_min_isr),
                "unclean.leader.election.enable": "false",
            },
        )
    return _topic(name, -1, -1, {})


def _topic(name: str, num_partitions: int, replication_factor: int, configs: Mapping[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
