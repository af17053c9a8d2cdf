"""`transactions` and what `why` says of them: beside Kafka's own tool, on Apache Kafka and on our node."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.testing import EmbeddedBroker
from tests.cli.kafka_tools import KafkaTools
from tests.cli.tools import Told, Tools
from tests.compat.transacting import require_transactions, write_hanging
from tests.oracles import needs_kafka

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
ck_admin = pytest.importorskip("confluent_kafka.admin", reason="confluent-kafka is not installed")

pytestmark = needs_kafka()

TOPIC = "moves"
TIMEOUT_S = 30
_VERIFY = "transaction.partition.verification.enable"


@dataclass
class Story:
    """A transaction that is open, one that was committed; and one that hangs, in a topic of its own."""

    bootstrap: str
    open_one: Any
    hanging_offset: int


def transactional(bootstrap: str, transactional_id: str) -> Any:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    producer = ck.Producer({**settings, "transaction.timeout.ms": 120_000})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(TOPIC, b"moved", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


@contextmanager
def unverified(bootstrap: str) -> Iterator[None]:
    """Partitions do not ask coordinators meanwhile."""
    from barnabas import Admin, AlterConfig, ConfigResource, ConfigResourceType

    everybody = ConfigResource(ConfigResourceType.BROKER, "")
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_configs({everybody: [AlterConfig(_VERIFY, "false")]})
        yield
        admin.alter_configs({everybody: [AlterConfig(_VERIFY, "true")]})


def play(bootstrap: str) -> Story:
    require_transactions(bootstrap)
    admin = ck_admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for each in admin.create_topics([ck_admin.NewTopic(TOPIC, 2, 1), ck_admin.NewTopic("stuck", 1, 1)]).values():
        each.result(TIMEOUT_S)
    transactional(bootstrap, "done").commit_transaction(TIMEOUT_S)
    open_one = transactional(bootstrap, "open")
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    with unverified(bootstrap):
        offset = _written(bootstrap, hour_ago_ms)
    return Story(bootstrap, open_one, offset)


def _written(bootstrap: str, timestamp_ms: int) -> int:
    """A setting that was changed comes to the broker a little later."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return write_hanging(bootstrap, "stuck", 0, 4_000_000, timestamp_ms)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


@pytest.fixture(scope="module", params=["Apache Kafka", "our node"])
def story(request: pytest.FixtureRequest) -> Iterator[Story]:
    if request.param == "Apache Kafka":
        yield play(request.getfixturevalue("apache_kafka"))
        return
    with EmbeddedBroker() as broker:
        yield play(broker.bootstrap_servers)


def same(text: str) -> list[str]:
    """How long a transaction is open changes from call to call; so may the order of rows, and of partitions."""
    text = re.sub(r"(\t120000 *\t\d+ *\t)\d+ *\t", r"\1N\t", text)
    return sorted(re.sub(r"[\w-]+(,[\w-]+)+", lambda found: ",".join(sorted(found[0].split(","))), text).splitlines())


def both(barnabas: Tools, kafka: KafkaTools, story: Story, call: str) -> tuple[Told, Told]:
    arguments = ("--bootstrap-server", story.bootstrap, *call.split())
    return barnabas("transactions", *arguments), kafka("transactions", *arguments)


@pytest.mark.parametrize(
    "call",
    [
        "list",
        "list --duration-filter 0 --transactional-id-pattern op.*",
        "list --transactional-id-pattern nothing",
        "describe --transactional-id open",
        "describe --transactional-id done",
        f"describe-producers --topic {TOPIC} --partition 0",
        "describe-producers --topic stuck --partition 0",
        "find-hanging --broker-id 1",
        "find-hanging --topic stuck",
        "find-hanging --topic stuck --partition 0 --broker-id 1",
        "find-hanging --topic stuck --max-transaction-timeout 61",
        f"find-hanging --topic {TOPIC} --max-transaction-timeout -1",
    ],
)
def test_the_same_as_kafkas_tool_says(barnabas: Tools, kafka: KafkaTools, story: Story, call: str) -> None:
    ours, kafkas = both(barnabas, kafka, story, call)
    assert (ours.code, same(ours.out)) == (kafkas.code, same(kafkas.out)) == (0, same(ours.out)), (ours, kafkas)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("describe --transactional-id nobody", "cannot describe transactional id nobody: there is no such id"),
        ("abort --topic stuck --partition 0 --start-offset 77", "no open transaction of stuck-0 begins at offset 77"),
    ],
)
def test_what_cannot_be_done(barnabas: Tools, kafka: KafkaTools, story: Story, call: str, said: str) -> None:
    ours, kafkas = both(barnabas, kafka, story, call)
    assert ours.code == kafkas.code == 1
    assert said in ours.err


def test_why_names_the_transaction_and_its_advice_ends_it(barnabas: Tools, story: Story) -> None:
    (found,) = barnabas.json_at(story.bootstrap, f"why {TOPIC}:1")
    assert found["verdict"] == "well"
    text = " ".join(found["sentences"])
    assert "read_committed sees nothing from offset 2 on: the transaction of open is open (Ongoing)" in text
    assert re.search(r"coordinator: broker 1\. It began at .* and may take 120 s: it is aborted in \d+ s", text)
    assert found["advice"][-1]["command"].endswith("forceTerminateTransaction --transactionalId open")

    (found,) = barnabas.json_at(story.bootstrap, "why stuck")
    assert found["verdict"] == "read_committed held back"
    text = " ".join(found["sentences"])
    assert f"from offset {story.hanging_offset} on: a transaction of producer 4000000 (epoch 0) is open, and hangs" in (
        text
    )
    assert "(60 min ago). No coordinator knows this producer" in text
    for advised in ("stuck", TOPIC):
        (found, *_) = barnabas.json_at(story.bootstrap, f"why {advised}")
        told = barnabas(*found["advice"][-1]["command"].split()[1:])
        assert (told.code, told.out, told.err) == (0, "", "")
        assert all(each["advice"] == [] for each in barnabas.json_at(story.bootstrap, f"why {advised}"))
    with pytest.raises(ck.KafkaException) as raised:
        story.open_one.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()


@pytest.mark.parametrize(
    ("given", "pattern", "count"),
    [
        ("--transactional-id measured", "measured", 1),
        ("--transaction-duration-ms 1", "performance-producer-.*", 3),
        ("--command-property transactional.id=settings --transaction-duration-ms 60000", "settings", 1),
    ],
)
def test_speed_is_measured_in_transactions(barnabas: Tools, story: Story, given: str, pattern: str, count: int) -> None:
    topic = f"perf-{pattern.rstrip('-.*')}"
    told = barnabas.at(
        story.bootstrap,
        f"producer-perf-test --topic {topic} --num-records 30000 --record-size 10 --throughput -1 {given}",
    )
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("30000 records sent, ")
    (listed,) = barnabas.json_at(story.bootstrap, f"transactions list --transactional-id-pattern {pattern}")
    assert listed["TransactionState"] in ("CompleteCommit", "PrepareCommit")
    ends = barnabas.at(story.bootstrap, f"get-offsets --topic {topic}").out.split(":")
    # A marker for each commit. No machine sends so many in so few milliseconds that there is none before the end.
    assert int(ends[-1]) - 30000 >= count


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("list", "--bootstrap-server is missing"),
        ("--bootstrap-server a:1 describe", "Missing option '--transactional-id'"),
        ("--bootstrap-server a:1 list --duration-filter x", "'x' is not a valid integer"),
        ("--bootstrap-server a:1 describe-producers --topic a", "Missing option '--partition'"),
        ("--bootstrap-server a:1 find-hanging", "give --topic or --broker-id"),
        ("--bootstrap-server a:1 find-hanging --broker-id 1 --partition 0", "--partition goes only with --topic"),
        ("--bootstrap-server a:1 abort --topic a --partition 0", "say which transaction: --start-offset"),
        ("--bootstrap-server a:1 abort --topic a --partition 0 --producer-id 1", "--producer-epoch is missing"),
        ("--bootstrap-server a:1 forceTerminateTransaction", "Missing option '--transactionalId'"),
        ("--bootstrap-server a:1 nonsense", "No such command 'nonsense'"),
    ],
)
def test_wrong_calls_end_with_1(barnabas: Tools, call: str, said: str) -> None:
    told = barnabas("transactions", *call.split())
    assert told.code == 1
    assert said in told.err
