"""Each MBean of a Kafka broker and controller: the family that tells the same, or why there is none.

Names are those of Kafka 4.3.1 with `*` for what varies. A test holds that all of a running Kafka are here, and that all
families that name an MBean are right; `docs/metrics.md` has the table that is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.base.metrics.exposition import Family

_NO_SHARE: Final = "share groups are not built"
_NO_STREAMS: Final = "streams groups are not built"
_NO_CONSUMER: Final = "groups of the consumer protocol (KIP-848) are not built"
_NO_TIERED: Final = "tiered storage is not built"
_THREADS: Final = "there is one event loop and no pool of threads: see barnabas_loop_idle_ratio"
_CHANNELS: Final = (
    "Java's client inside the broker; requests between nodes are in requestmetrics of the node that answers them"
)
_WINDOWS: Final = "a rate over Kafka's window: take rate() of the counter beside it"
_LOOP: Final = "how a Java thread divides its time around select(): see barnabas_loop_idle_ratio"
_COORDINATOR: Final = "there is no queue before a coordinator: what it does counts in the times of requests"
_THROTTLED: Final = "a mean over Kafka's window: take rate() of barnabas_throttled_ms_total"
_ZERO_COPY: Final = "message formats 0 and 1 are converted nowhere: Kafka 4 does not take them either"

#: Patterns of MBeans, and of attributes behind a `#`, for which there is no family, each with the reason. The first
#: that fits counts.
REASONS: Final[tuple[tuple[str, str], ...]] = (
    (r".*[Ss]hare.*", _NO_SHARE),
    (r".*Persister-channel-metrics.*", _NO_SHARE),
    (r".*group-coordinator-metrics#share-.*", _NO_SHARE),
    (r".*group-coordinator-metrics,(protocol|state)=.*streams.*", _NO_STREAMS),
    (r".*group-coordinator-metrics.*#streams-.*", _NO_STREAMS),
    (r".*group-coordinator-metrics,state=(Assigning|Reconciling|NotReady|Dead|Empty|Stable).*", _NO_CONSUMER),
    (r".*group-coordinator-metrics,protocol=consumer.*", _NO_CONSUMER),
    (r".*group-coordinator-metrics#consumer-group-rebalance.*", _NO_CONSUMER),
    (r".*delayedOperation=Remote.*", _NO_TIERED),
    (r".*DelayedRemoteListOffsetsMetrics.*", _NO_TIERED),
    (r".*delayedOperation=(AlterAcls|ShareFetch).*", "changes of ACLs are answered when the metadata is applied"),
    (r".*(channel-metrics|txn-marker-channel-metrics|alter-partition-metrics|forwarding-metrics).*", _CHANNELS),
    (r".*(heartbeat-metrics|registration-metrics|directory-assignments-metrics|replica-fetcher-metrics).*", _CHANNELS),
    (r".*kafka\.utils:type=Throttler,name=cleaner-io", "the cleaner is not throttled"),
    (r".*group-coordinator-metrics#(event|background|batch|thread)-.*", _COORDINATOR),
    (r".*group-coordinator-metrics#partition-load-time-.*", "told in the log, with how much was loaded"),
    (r".*transaction-coordinator-metrics#partition-load-time-.*", "told in the log, with how much was loaded"),
    (
        r".*group-coordinator-metrics#(offset-commit|offset-deletion|offset-expiration|group-completed).*",
        "commits are counted as requests (OffsetCommit); barnabas_group_committed_offset tells what was committed",
    ),
    (r".*socket-server-metrics.*#(io-|select-|network-io).*", _LOOP),
    (r".*socket-server-metrics,ip=.*", "addresses are not told apart: see barnabas_connections_refused_total"),
    (r".*socket-server-metrics.*#ip-connection-accept-throttle-time", "see barnabas_connections_refused_total"),
    (r".*socket-server-metrics.*#.*-rate", _WINDOWS),
    (r".*socket-server-metrics.*#(request-size-.*)", "see kafka_network_requestmetrics_requestbytes"),
    (r".*socket-server-metrics.*#response-total", "each request that is counted has its answer: request-total"),
    (
        r".*socket-server-metrics.*#(reauthentication|.*reauthentication|successful-authentication-no-reauth).*",
        "authentication again is counted with the first one",
    ),
    (r".*socket-server-metrics.*#.*accept-throttle-time", "connections that come too fast wait, and are not counted"),
    (r".*socket-server-metrics#MemoryPool.*", "see kafka_network_socketserver_memorypoolused"),
    (r".*KafkaRequestHandlerPool,name=(Broker|Controller)RequestHandlerAvgIdlePercent", _THREADS),
    (r".*type=Processor,name=IdlePercent.*", _THREADS),
    (r".*Acceptor,name=AcceptorBlockedPercent.*", "connections that come too fast wait, and are not counted"),
    (r".*RequestChannel,name=ResponseQueueSize.*", "answers leave at the end of a turn: there is no queue of them"),
    (r".*(ControllerEventManager|MetadataLoader),name=(AvgIdleRatio).*", _THREADS),
    (r".*ControllerEventManager,name=EventQueue.*", "the controller decides at once: there is no queue of events"),
    (
        r".*SocketServer,name=ExpiredConnectionsKilledCount",
        "see socket-server-metrics",
    ),
    (r".*MessageConversions.*", _ZERO_COPY),
    (r".*RequestMetrics,name=TemporaryMemoryBytes.*", _ZERO_COPY),
    (r".*BrokerTopicMetrics,name=(Invalid|NoKey).*", "such batches are refused: see failedproducerequests and the log"),
    (r".*BrokerTopicMetrics,name=Reassignment.*", "bytes of replicas that move are in replicationbytesin and -out"),
    (r".*LogManager,name=.*Cordoned.*", "directories cannot be cordoned"),
    (
        r".*LogCleaner,name=(DeadThreadCount|cleaner-recopy-percent|max-buffer-utilization-percent).*",
        "a task of the loop, whose memory is bounded by the settings; failures are in uncleanable-partitions-count",
    ),
    (r".*LogCleaner,name=max-compaction-delay-secs", "see max-dirty-percent and time-since-last-run-ms"),
    (r".*ReplicaAlterLogDirsManager.*", "replicas are not moved between directories"),
    (r".*ReplicaFetcherManager,name=(DeadThreadCount|MinFetchRate).*", "fetchers are tasks of the loop"),
    (r".*FetcherStats,name=BytesPerSec.*", "by topic, not by leader: see replicationbytesin of brokertopicmetrics"),
    (r".*FetcherStats,name=RequestsPerSec.*", "the leader that answers them counts them, as FetchFollower"),
    (r".*(Leader|Follower)Replication#byte-rate", "quotas of replication are not built"),
    (
        r".*(ControllerMutation|:type=Fetch|:type=Produce|:type=Request).*#queue-size",
        "connections are muted, none waits",
    ),
    (r".*(ControllerMutation|:type=Fetch|:type=Produce|:type=Request).*#throttle-time", _THROTTLED),
    (r".*ControllerMutation.*#mutation-rate", "see tokens, which are what is left of the quota"),
    (r".*:type=Request#exempt-request-time", "what nodes ask of each other is in the times of its requests"),
    (r".*yammer-metrics-count|.*kafka-metrics-count#count", "see barnabas_scrape_samples"),
    (r".*ControllerServer,name=.*", "one process, one sample: see the same of KafkaServer"),
    (r".*app-info,(client-id|id)=.*", "the same as without: clients inside a node are no others"),
    (r".*client-metrics#.*", "clients push no telemetry here"),
    (r".*ForwardingManager#.*", "told as the remote time of the requests that are forwarded"),
    (
        r".*AddPartitionsToTxnManager,name=.*",
        "told as AddPartitionsToTxn, and as remote time of Produce",
    ),
    (r".*BrokerMetadataListener,name=.*", "see last-applied-record-lag-ms"),
    (
        r".*broker-metadata-metrics#(metadata-(apply|load)-error-count|ignored-static-voters)",
        "metadata that cannot be applied ends the node",
    ),
    (
        r".*KafkaController,name=IgnoredStaticVoters",
        "what is said of voters is checked at the start",
    ),
    (r".*MetadataLoader,name=HandleLoadSnapshotCount", "told in the log"),
    (r".*SnapshotEmitter,name=.*", "see barnabas_raft_log_start_offset, which a snapshot moves"),
    (r".*node-metrics,feature-name=.*", "levels that are finalised: see kafka_server_metadataloader_finalizedlevel"),
    (r".*raft-metrics#(append-records-rate|fetch-records-rate)", "take rate() of log-end-offset"),
    (
        r".*raft-metrics#(commit-latency|election-latency|poll-idle).*",
        "told as times of requests between them",
    ),
    (
        r".*raft-metrics#(current-vote-directory-id|uncommitted-voter-change|number-unknown-voter-connections)",
        "see metadata-quorum describe",
    ),
    (
        r".*TransactionMarkerChannelManager,name=.*",
        "see barnabas_transactional_ids, PrepareCommit and PrepareAbort",
    ),
)


#: Properties that are labels, whatever they say.
_LABELS: Final = ("delayedOperation", "featureName", "state", "protocol")


class Told(NamedTuple):
    """What there is for an MBean, or an attribute of one."""

    mbean: str
    family: Family | None
    reason: str


def normalized(mbean: str) -> str:
    """Without topic and partition where a family has them as labels of the same name, and in a fixed order."""
    bean, hash_, attribute = mbean.partition("#")
    domain, _, rest = bean.partition(":")
    kept = [each for each in rest.split(",") if not each.endswith("=*")]
    fixed = [each for each in kept if each.partition("=")[0] not in _LABELS]
    return f"{domain}:{','.join(fixed)}{hash_}{attribute}"


def told_for(mbean: str, families: Iterable[Family]) -> Told | None:
    """None for one that nobody has thought of."""
    for pattern, reason in REASONS:
        if re.fullmatch(pattern, mbean):
            return Told(mbean, None, reason)
    wanted = normalized(mbean)
    for family in families:
        if family.mbean is not None and normalized(family.mbean) == wanted:
            return Told(mbean, family, "")
    return None


def metrics_of(line: str) -> list[str]:
    """The metrics in a line of the facts: an MBean of one value, or each attribute of one that has many."""
    mbean, _, attributes = line.partition("\t")
    if ",name=" in mbean:
        return [mbean]
    return [f"{mbean}#{attribute}" for attribute in attributes.split(",")]
