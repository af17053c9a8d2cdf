"""Who the node is, where it listens, and how much it takes on."""

from __future__ import annotations

from barnabas.base.settings import HIGH, LIVE, LOW, MEDIUM, NO_EFFECT, NOT_BUILT, Int, Long, Names, Settings, setting
from barnabas.base.settings.allowed import at_least, items, one_of
from barnabas.base.settings.units import INT_MAX, KIB, LONG_MAX, MIB, MINUTE_MS


class NodeSettings(Settings, title="Node", importance=HIGH):
    """Who this node is and which roles it plays."""

    process_roles: Names = setting(
        "The roles of this node: broker, controller, or both.", allowed=items("broker", "controller", at_least_one=True)
    )
    node_id: Int = setting(
        "The number of this node, unique in the cluster; it must match meta.properties.",
        allowed=at_least(0),
        dependents=("broker.id",),
    )
    broker_id: Int = setting("Older name of node.id; when both are given they must agree.", default=-1)
    broker_rack: str | None = setting(
        "The rack or zone of this node, used to spread replicas and to read from nearby.",
        default=None,
        importance=MEDIUM,
    )
    initial_broker_registration_timeout_ms: Int = setting(
        "How long a starting broker tries to register before it gives up.",
        default=60_000,
        importance=MEDIUM,
    )
    broker_heartbeat_interval_ms: Int = setting(
        "How often a broker tells the controller that it is alive.",
        default=2000,
        importance=MEDIUM,
    )
    broker_session_timeout_ms: Int = setting(
        "After how much silence the controller takes a broker for dead.", default=9000, importance=MEDIUM
    )
    controlled_shutdown_enable: bool = setting(
        "Whether a stopping broker first hands its partitions over.", default=True, importance=MEDIUM
    )
    server_max_startup_time_ms: Long = setting(
        "How long the start may take before the node gives up.",
        default=LONG_MAX,
        allowed=at_least(0),
        importance=MEDIUM,
        internal=True,
        state=NOT_BUILT,
        refused=False,
    )
    early_start_listeners: Names | None = setting(
        "Listeners that open before the authorizer is ready: those of controllers always do, and serve super.users; "
        "those of brokers never do.",
        default=None,
        allowed=items(),
        state=NO_EFFECT,
    )
    unstable_api_versions_enable: bool = setting(
        "Whether versions of the protocol that may still change are offered.",
        default=False,
        internal=True,
        state=NOT_BUILT,
    )
    unstable_feature_versions_enable: bool = setting(
        "Whether feature levels that may still change are offered.", default=False, internal=True, state=NOT_BUILT
    )
    config_providers: Names = setting(
        "Names of plug-ins that look values up elsewhere, such as in files or a vault.",
        default=(),
        allowed=items(),
        importance=LOW,
        state=NOT_BUILT,
    )


class ListenerSettings(Settings, title="Listeners", importance=HIGH):
    """Where the node listens and under which addresses others reach it."""

    listeners: Names = setting(
        "Where the node listens: NAME://host:port, an empty host for all addresses.",
        default=("PLAINTEXT://:9092",),
        allowed=items(at_least_one=True),
    )
    advertised_listeners: Names | None = setting(
        "The addresses that clients are told to use; null means those of listeners.",
        default=None,
        allowed=items(at_least_one=True),
    )
    listener_security_protocol_map: str = setting(
        "Which security protocol each listener name uses: NAME:PROTOCOL.",
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        importance=LOW,
    )
    inter_broker_listener_name: str | None = setting(
        "The listener on which brokers talk to each other; null means the one of security.inter.broker.protocol.",
        default=None,
        importance=MEDIUM,
    )
    security_inter_broker_protocol: str = setting(
        "The security protocol between brokers, when no listener is named for it.",
        default="PLAINTEXT",
        allowed=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        importance=MEDIUM,
    )
    controller_listener_names: Names = setting(
        "The listeners of the controllers; brokers use the first one.", allowed=items(at_least_one=True)
    )


class NetworkSettings(Settings, title="Network"):
    """Limits of connections and requests."""

    socket_request_max_bytes: Int = setting(
        "The largest request that is accepted.", default=100 * MIB, allowed=at_least(1), importance=HIGH
    )
    socket_listen_backlog_size: Int = setting(
        "How many connections may wait to be accepted.", default=50, allowed=at_least(1)
    )
    socket_send_buffer_bytes: Int = setting(
        "Size of the send buffer of a socket; -1 leaves it to the system.",
        default=100 * KIB,
        importance=HIGH,
        state=NO_EFFECT,
    )
    socket_receive_buffer_bytes: Int = setting(
        "Size of the receive buffer of a socket; -1 leaves it to the system.",
        default=100 * KIB,
        importance=HIGH,
        state=NO_EFFECT,
    )
    socket_connection_setup_timeout_ms: Long = setting(
        "How long a connection to another node may take to open at first.", default=10_000
    )
    socket_connection_setup_timeout_max_ms: Long = setting(
        "The longest that opening a connection may take after repeated failures.", default=30_000
    )
    connections_max_idle_ms: Long = setting("After how much silence a connection is closed.", default=10 * MINUTE_MS)
    max_connections: Int = setting(
        "How many connections the node accepts in all; a listener may have its own limit.",
        default=INT_MAX,
        allowed=at_least(0),
        state=LIVE,
    )
    max_connections_per_ip: Int = setting(
        "How many connections one address may open.",
        default=INT_MAX,
        allowed=at_least(0),
        state=LIVE,
        dependents=("max.connections.per.ip.overrides",),
    )
    max_connections_per_ip_overrides: str = setting(
        "Other limits for single hosts or addresses: host:count.", default="", state=LIVE
    )
    max_connection_creation_rate: Int = setting(
        "How many new connections per second are accepted.", default=INT_MAX, allowed=at_least(0), state=LIVE
    )
    connection_failed_authentication_delay_ms: Int = setting(
        "How long a connection that failed to authenticate waits for its answer, and for its end.",
        default=100,
        allowed=at_least(0),
        importance=LOW,
    )
    queued_max_requests: Int = setting(
        "How many requests may wait before the network stops reading.",
        default=500,
        allowed=at_least(1),
        importance=HIGH,
    )
    queued_max_request_bytes: Long = setting(
        "How many bytes of requests may wait before the network stops reading; -1 for no limit.", default=-1
    )
    request_timeout_ms: Int = setting(
        "How long this node waits for another one to answer.", default=30_000, importance=HIGH
    )
    controller_socket_timeout_ms: Int = setting(
        "How long a broker waits for a controller to answer what it forwarded.", default=30_000
    )
    num_network_threads: Int = setting(
        "Threads for the network in Kafka; here one event loop does the work.",
        default=3,
        allowed=at_least(1),
        importance=HIGH,
        state=NO_EFFECT,
    )
    num_io_threads: Int = setting(
        "Threads for requests in Kafka; here one event loop does the work.",
        default=8,
        allowed=at_least(1),
        importance=HIGH,
        state=NO_EFFECT,
    )
    background_threads: Int = setting(
        "Threads for background work in Kafka; here a bounded pool is shared.",
        default=10,
        allowed=at_least(1),
        importance=HIGH,
        state=NO_EFFECT,
    )
    max_request_partition_size_limit: Int = setting(
        "How many partitions one DescribeTopicPartitions request may ask for.", default=2000, allowed=at_least(1)
    )
