"""From PLAINTEXT to SASL_SSL with ACLs, one node at a time, while clients write and read: the chapter of
docs/security.md, brokers and controllers alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.main import main
from tests.cluster.nodes import Cluster, Node
from tests.cluster.secured import Certificates, RunningClients, jaas
from tests.ports import free_ports

TOPIC = "moving"
USERS = {"node": "node-pw-7Qx~", "admin": "admin-pw-7Qx~", "ann": "ann-pw-7Qx~"}
MECHANISM = "SCRAM-SHA-512"
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "controller.quorum.election.timeout.ms": "500",
}
BOTH = "PLAINTEXT://{plain},SASL_SSL://{secured},CONTROLLER://{controller},CONTROLLER_SASL://{other}"
ONLY = "SASL_SSL://{secured},CONTROLLER_SASL://{other}"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT,CONTROLLER_SASL:SASL_SSL"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:admin",
}


class MovingCluster(Cluster):
    """Three nodes, and where each listens once it is secured."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, settings=REPLICATED)
        self.certificates = Certificates(folder / "certificates")
        self.secured, self.others = (
            {each: f"127.0.0.1:{port}" for each, port in zip(self.nodes, free_ports(3), strict=True)} for _ in range(2)
        )

    @property
    def secured_bootstrap(self) -> str:
        return ",".join(self.secured.values())

    def secured_properties(self, node: Node, changes: Mapping[str, str]) -> dict[str, str]:
        controllers = jaas("PLAIN", "node", USERS["node"], {"node": USERS["node"]})
        places = {
            "plain": node.bootstrap,
            "secured": self.secured[node.node_id],
            "controller": node.controller,
            "other": self.others[node.node_id],
        }
        found = {
            **self.certificates.settings(f"node-{node.node_id}", "127.0.0.1", "localhost"),
            "listener.security.protocol.map": PROTOCOLS,
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": jaas(MECHANISM, "node", USERS["node"]),
            "listener.name.controller_sasl.sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller_sasl.plain.sasl.jaas.config": controllers,
            **changes,
        }
        return found | {"listeners": found["listeners"].format(**places)}

    @property
    def secured_voters(self) -> str:
        return ",".join(f"{node_id}@{address}" for node_id, address in self.others.items())

    def roll(self, clients: RunningClients, **changes: str) -> None:
        """Restart one node after the other with other settings; the clients get on after each."""
        given = {name.replace("_", "."): value for name, value in changes.items()}
        for node in self.nodes.values():
            assert node.stop() == 0
            self.write(node, self.secured_properties(node, given))
            self.start(node.node_id)
            clients.until_more()

    def client(self, user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.secured_bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas(MECHANISM, user, USERS[user]),
        }

    def librdkafka(self, user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.secured_bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": USERS[user],
        }


def tool(*words: str) -> None:
    assert main(list(words)) == 0, words


def all_was_read(clients: RunningClients) -> None:
    clients.stop()
    assert clients.problems == []
    assert clients.acknowledged <= set(clients.read)


def until_in_sync(settings: Mapping[str, str]) -> None:
    """Who was away for a moment must be back before the next goes."""
    deadline_s = time.monotonic() + 60
    with barnabas.Admin(settings) as admin:
        while any(
            len(partition.isr) < 3 for each in admin.describe_topics([TOPIC]).values() for partition in each.partitions
        ):
            assert time.monotonic() < deadline_s
            time.sleep(0.1)


@pytest.mark.slow
def test_from_plaintext_to_sasl_ssl_while_clients_go_on(tmp_path: Path) -> None:
    cluster = MovingCluster(tmp_path)
    plain = {"bootstrap.servers": cluster.bootstrap}
    with cluster:
        with barnabas.Admin(plain) as admin:
            admin.create_topics([barnabas.NewTopic(TOPIC, num_partitions=3, replication_factor=3)])
        with RunningClients(TOPIC, plain, plain) as clients:
            clients.until_more()
            # Everybody listens with SASL_SSL as well, and nobody uses it.
            names = {"listener_security_protocol_map": PROTOCOLS, "inter_broker_listener_name": "PLAINTEXT"}
            cluster.roll(clients, listeners=BOTH, controller_listener_names="CONTROLLER,CONTROLLER_SASL", **names)
            for user, password in USERS.items():
                tool(
                    *("configs", "--bootstrap-server", cluster.bootstrap, "--alter", "--entity-type", "users"),
                    *("--entity-name", user, "--add-config", f"{MECHANISM}=[password={password}]"),
                )
            # Brokers talk to each other there, and so do controllers.
            cluster.roll(
                clients,
                listeners=BOTH,
                controller_listener_names="CONTROLLER_SASL,CONTROLLER",
                inter_broker_listener_name="SASL_SSL",
                controller_quorum_voters=cluster.secured_voters,
            )
            all_was_read(clients)
        before = clients.acknowledged
        with RunningClients(TOPIC, cluster.client("ann"), cluster.librdkafka("ann")) as clients:
            clients.until_more()
            _close_the_old_ports(cluster, clients)
            all_was_read(clients)
        _is_secured(cluster, before | clients.acknowledged)


def _close_the_old_ports(cluster: MovingCluster, clients: RunningClients) -> None:
    last = {
        "listeners": ONLY,
        "listener_security_protocol_map": "SASL_SSL:SASL_SSL,CONTROLLER_SASL:SASL_SSL",
        "controller_listener_names": "CONTROLLER_SASL",
        "inter_broker_listener_name": "SASL_SSL",
        "controller_quorum_voters": cluster.secured_voters,
        **{name.replace(".", "_"): value for name, value in AUTHORIZER.items()},
    }
    cluster.roll(clients, **last, allow_everyone_if_no_acl_found="true")
    config = cluster.folder / "admin.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in cluster.client("admin").items()))
    tool(
        *("acls", "--bootstrap-server", cluster.secured_bootstrap, "--command-config", str(config), "--add"),
        *("--allow-principal", "User:ann", "--producer", "--consumer", "--topic", TOPIC, "--group", "readers"),
    )
    cluster.roll(clients, **last)


def _is_secured(cluster: MovingCluster, written: set[bytes]) -> None:
    """Nobody listens without TLS; ann may what she was given; and it all comes up again after all nodes were down."""
    for node in cluster.nodes.values():
        assert node.stop() == 0
    cluster.start()
    until_in_sync(cluster.client("admin"))
    own = {**cluster.client("ann"), "auto.offset.reset": "earliest"}
    with barnabas.Consumer(own) as consumer:
        consumer.assign([barnabas.TopicPartition(TOPIC, each) for each in range(3)])
        found, deadline_s = set[bytes](), time.monotonic() + 60
        while not written <= found and time.monotonic() < deadline_s:
            found |= {each.value for each in consumer.poll(1)}
    assert written <= found
    with barnabas.Admin(cluster.client("ann")) as admin, pytest.raises(barnabas.BarnabasError, match="AUTHORIZATION"):
        admin.create_topics([barnabas.NewTopic("hers")])
    with (
        pytest.raises(barnabas.BarnabasError),
        barnabas.Admin({"bootstrap.servers": cluster.bootstrap, "default.api.timeout.ms": "2000"}) as admin,
    ):
        admin.list_topics()
    told = "".join(each.told() for each in cluster.nodes.values())
    assert "7Qx~" not in told
