"""Our tools show what Kafka's show of the same cluster, be it ours or Apache Kafka."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import main
from tests.cli import story
from tests.cli.kafka_tools import KafkaTools
from tests.cli.test_consumer_groups import BAD_REGEXES, GOOD_REGEXES
from tests.cli.tools import Tools
from tests.oracles import needs_kafka

pytestmark = needs_kafka()

#: Questions that every broker answers.
QUESTIONS = f"""
topics --list
topics --list --exclude-internal
topics --list --topic clicks,nothing
topics --describe --topic 'c.*'
topics --describe --exclude-internal --topics-with-overrides
topics --describe --topic clicks --at-min-isr-partitions
topics --describe --under-replicated-partitions --unavailable-partitions --under-min-isr-partitions
topics --describe --topic nothing --if-exists
configs --describe --topic clicks
configs --describe --topic clicks --all
configs --describe --entity-type topics --entity-name a.b_c
configs --describe --topic nothing
configs --describe --entity-type brokers
configs --describe --broker 1
configs --describe --broker-defaults
configs --describe --entity-type brokers --entity-default
configs --describe --broker 99
consumer-groups --list
consumer-groups --list --state
consumer-groups --list --type --state
consumer-groups --list --state stable,Empty
consumer-groups --list --state Dead
consumer-groups --describe --group readers
consumer-groups --describe --all-groups --offsets --verbose
consumer-groups --describe --group readers --members
consumer-groups --describe --group {story.LONG_GROUP} --members --verbose
consumer-groups --describe --group readers --state
consumer-groups --describe --group readers --state --verbose
consumer-groups --reset-offsets --group readers --topic clicks --to-earliest --dry-run
consumer-groups --reset-offsets --group readers --topic clicks:0 --to-latest --dry-run
consumer-groups --reset-offsets --group {story.LONG_GROUP} --all-topics --to-current --dry-run
consumer-groups --reset-offsets --group readers --topic clicks:0 --shift-by -2 --dry-run
consumer-groups --reset-offsets --group readers --topic clicks:0 --shift-by -9 --dry-run
consumer-groups --reset-offsets --group readers --topic clicks:0 --to-offset 77 --dry-run
consumer-groups --reset-offsets --group readers --topic clicks:0 --to-datetime 2023-11-14T22:13:22.000 --dry-run
consumer-groups --reset-offsets --group readers --topic clicks:0 --to-datetime 2023-11-14T23:13:22.000+0100 --dry-run
consumer-groups --reset-offsets --group readers --topic clicks:0 --by-duration P20000D --dry-run
consumer-groups --reset-offsets --group nobody-yet --topic clicks --to-current --dry-run
consumer-groups --reset-offsets --group readers --topic clicks:0 --to-offset 1 --dry-run --export
consumer-groups --validate-regex 'click.*'
get-offsets --exclude-internal-topics
get-offsets --topic 'cl.*' --time -2
get-offsets --topic clicks --time earliest
get-offsets --topic clicks --time max-timestamp
get-offsets --topic clicks --time earliest-local
get-offsets --topic clicks --time 1700000002000
get-offsets --topic clicks --partitions 1
get-offsets --topic-partitions clicks:0,a.b_c:1-,clicks:-1
leader-election --election-type preferred --topic clicks --partition 1
leader-election --election-type UNCLEAN --topic clicks --partition 0
leader-election --election-type preferred --all-topic-partitions
log-dirs --describe
log-dirs --describe --topic-list clicks,nothing --broker-list 1
log-dirs --describe --topic-list nothing
""".strip().splitlines()

QUOTAS = """
configs --alter --user ann --add-config producer_byte_rate=1024,consumer_byte_rate=123456789
configs --alter --user ann --client app --add-config request_percentage=150
configs --alter --client b --user-defaults --add-config producer_byte_rate=7
configs --alter --client-defaults --add-config consumer_byte_rate=20000000
configs --alter --ip 127.0.0.1 --add-config connection_creation_rate=10000
configs --alter --ip-defaults --add-config connection_creation_rate=20000
configs --alter --user ann --add-config SCRAM-SHA-256=[iterations=8192,password=one=two]
configs --alter --user ann --add-config SCRAM-SHA-512=[password=secret]
configs --alter --user bob --add-config SCRAM-SHA-512=[iterations=-1,password=secret]
configs --alter --ip localhost --add-config connection_creation_rate=30000
configs --alter --user bob --add-config producer_byte_rate=5
configs --alter --user bob --delete-config producer_byte_rate
""".strip().splitlines()
#: What our node does not have yet.
UNBUILT = """
configs --alter --client-metrics all --add-config interval.ms=1000,metrics=[org.a,org.b]
configs --alter --group readers --add-config consumer.session.timeout.ms=50000
""".strip().splitlines()
QUOTA_QUESTIONS = """
configs --describe --entity-type users
configs --describe --user ann
configs --describe --user bob
configs --describe --user nobody
configs --describe --user-defaults
configs --describe --entity-type clients
configs --describe --entity-type clients --entity-name nobody
configs --describe --entity-type users --entity-type clients
configs --describe --user ann --client app
configs --describe --entity-type users --entity-name ann --entity-type clients
configs --describe --entity-type ips
configs --describe --ip-defaults
""".strip().splitlines()
UNBUILT_QUESTIONS = """
configs --describe --entity-type client-metrics
configs --describe --client-metrics nothing
configs --describe --entity-type groups
configs --describe --group readers
configs --describe --broker-logger 1
""".strip().splitlines()


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


@pytest.fixture(scope="module")
def theirs(apache_kafka: str) -> str:
    story.play(apache_kafka)
    for call in (*QUOTAS, *UNBUILT):
        tool, *arguments = shlex.split(call)
        assert main([tool, "--bootstrap-server", apache_kafka, *arguments]) == 0
    return apache_kafka


def assert_same(barnabas: Tools, kafka: KafkaTools, bootstrap: str, call: str) -> None:
    """The same lines: Kafka's tools leave their order to chance in many places, and some warnings to their logger."""
    tool, *arguments = shlex.split(call)
    ours = barnabas(tool, "--bootstrap-server", bootstrap, *arguments)
    kafkas = kafka(tool, "--bootstrap-server", bootstrap, *arguments)
    assert ours.code == kafkas.code == 0, (call, ours.err, kafkas.err)
    assert lines(ours.out) == lines(kafkas.out), call


def lines(text: str) -> list[tuple[str, list[str]]]:
    """Sorted, and the settings of a topic too, and the replicas in a directory."""
    if "logDirs" in text:
        text = re.sub(r"(?<=\"partitions\":\[){.*?}(?=\])", lambda found: _sorted_objects(found[0]), text)
    parts = (line.partition("Configs: ") for line in text.rstrip("\n").splitlines())
    return sorted((begin, sorted(settings.split(","))) for begin, _, settings in parts)


def _sorted_objects(text: str) -> str:
    return ",".join(sorted(re.findall("{.*?}", text)))


def test_of_our_node(barnabas: Tools, kafka: KafkaTools, our_node: str) -> None:
    for call in QUESTIONS:
        assert_same(barnabas, kafka, our_node, call)


def test_of_apache_kafka(barnabas: Tools, kafka: KafkaTools, theirs: str) -> None:
    for call in QUESTIONS:
        assert_same(barnabas, kafka, theirs, call)


def test_of_quotas_and_credentials(barnabas: Tools, kafka: KafkaTools, theirs: str) -> None:
    for call in (*QUOTA_QUESTIONS, *UNBUILT_QUESTIONS):
        assert_same(barnabas, kafka, theirs, call)


def test_of_quotas_and_credentials_of_our_node(barnabas: Tools, kafka: KafkaTools, our_node: str) -> None:
    for call in QUOTAS:
        tool, *arguments = shlex.split(call)
        assert main([tool, "--bootstrap-server", our_node, *arguments]) == 0
    for call in QUOTA_QUESTIONS:
        assert_same(barnabas, kafka, our_node, call)


def test_of_groups_with_members(barnabas: Tools, kafka: KafkaTools, our_node: str) -> None:
    with story.member(our_node, "lively"), story.member(our_node, "fixed", group_instance_id="one"):
        for form in ("", "--verbose", "--members", "--members --verbose", "--state", "--state --verbose"):
            for group in ("lively", "fixed"):
                assert_same(barnabas, kafka, our_node, f"consumer-groups --describe --group {group} {form}")
        assert_same(barnabas, kafka, our_node, "consumer-groups --list --state stable --type classic")


def test_changes_say_the_same(barnabas: Tools, kafka: KafkaTools, our_node: str, tmp_path: Path) -> None:
    offsets = tmp_path / "offsets.json"
    offsets.write_text(story.offsets_file(("gone", 0, 2), ("gone", 1, 0)))
    plan = tmp_path / "plan.csv"
    plan.write_text('"passing",gone,0,0\n"passing",gone,1,0\n')
    told: list[list[str]] = []
    for run in (barnabas, kafka):
        said = []
        for call in (
            "topics --create --topic gone --partitions 1",
            "topics --create --topic gone --if-not-exists",
            "topics --alter --topic gone --partitions 2",
            "configs --alter --topic gone --add-config retention.ms=1",
            "configs --alter --topic gone --delete-config retention.ms",
            f"consumer-groups --reset-offsets --group passing --from-file {plan} --execute",
            "consumer-groups --delete-offsets --group passing --topic gone:0",
            "consumer-groups --delete-offsets --group passing --topic gone",
            f"delete-records --offset-json-file {offsets}",
            "topics --delete --topic gone",
            "topics --delete --topic gone --if-exists",
        ):
            tool, *arguments = call.split()
            printed = run(tool, "--bootstrap-server", our_node, *arguments)
            said.append(call)
            # What failed is told in other words.
            said += sorted(line for line in printed.out.rstrip("\n").splitlines() if "error:" not in line)
        told.append(said)
    assert told[0] == told[1]


def test_of_regular_expressions(kafka: KafkaTools) -> None:
    for regexes, outcome in ((GOOD_REGEXES, "valid"), (BAD_REGEXES, "invalid")):
        for regex in regexes:
            said = f"The regular expression `{regex}` is {outcome}"
            assert kafka("consumer-groups", "--validate-regex", regex).out.startswith(said)
