"""Tools with Kafka's options refuse what Kafka's refuse: with code 1, in one line that names the option."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.cli.kafka_tools import KafkaTools
from tests.cli.tools import Tools
from tests.oracles import needs_kafka

#: A call without its --bootstrap-server, and what we say of it.
WRONG_CALLS = [
    ("topics --create --list --topic a", "exactly one of --list"),
    ("topics --topic a", "exactly one of --list"),
    ("topics --create", "--topic is missing for --create"),
    ("topics --delete", "--topic is missing for --delete"),
    ("topics --alter --topic a", "--partitions is missing for --alter"),
    ("topics --alter --topic a --partitions 2 --config x=y", "--alter does not go with --config"),
    ("topics --create --topic a --replica-assignment 1 --partitions 1", "--replica-assignment does not go with"),
    ("topics --create --topic a --replica-assignment 1 --replication-factor 1", "--replica-assignment does not go"),
    ("topics --describe --if-exists", "--topic or --topic-id is missing"),
    ("topics --list --config a=b", "--config goes only with --create"),
    ("topics --list --partitions 3", "--partitions goes only with --create or --alter"),
    ("topics --describe --replication-factor 1", "--replication-factor goes only with --create"),
    ("topics --list --if-exists", "--if-exists goes only with --alter, --delete or --describe"),
    ("topics --describe --if-not-exists", "--if-not-exists goes only with --create"),
    ("topics --delete --topic a --exclude-internal", "--exclude-internal goes only with --list or --describe"),
    ("topics --list --under-replicated-partitions", "--under-replicated-partitions goes only with --describe"),
    ("topics --describe --at-min-isr-partitions --topics-with-overrides", "does not go with --topics-with-overrides"),
    ("topics --list --topics-with-overrides", "--topics-with-overrides goes only with --describe"),
    ("topics --list --bootstrap-controller a:1", "--bootstrap-controller"),
    ("configs --topic a", "exactly one of --describe or --alter"),
    ("configs --describe --alter --topic a", "exactly one of --describe or --alter"),
    ("configs --describe", "--entity-type is missing"),
    ("configs --describe --entity-type bogus", "'bogus' is none of topics"),
    ("configs --describe --entity-type topics --entity-type brokers", "do not go together"),
    ("configs --describe --entity-type users --entity-type users", "users are asked for twice"),
    ("configs --describe --topic a --entity-name a", "--entity-name does not go with --topic"),
    ("configs --describe --entity-type topics --entity-default", "topics have no defaults"),
    ("configs --describe --entity-type broker-loggers", "--entity-name is missing"),
    ("configs --describe --topic a --add-config a=b", "--describe does not go with --add-config"),
    ("configs --describe --broker one", "'one' is no number"),
    ("configs --alter --topic a", "--add-config, --add-config-file or --delete-config is missing"),
    ("configs --alter --entity-type topics --add-config a=b", "--entity-name is missing for --alter of topics"),
    ("configs --alter --entity-type brokers --add-config a=b", "--entity-name or --entity-default is missing"),
    ("configs --alter --topic a --add-config a=b --add-config-file f", "does not go with --add-config-file"),
    ("configs --describe --topic a --bootstrap-controller b:1", "--bootstrap-server and --bootstrap-controller"),
    ("configs --describe --topic a --zookeeper b:1", "--zookeeper"),
    ("consumer-groups --list --delete --group a", "exactly one of"),
    ("consumer-groups --describe", "--group or --all-groups is missing for --describe"),
    ("consumer-groups --delete", "--group or --all-groups is missing for --delete"),
    ("consumer-groups --describe --group a --all-groups", "--group does not go with --all-groups"),
    ("consumer-groups --describe --group a --topic b", "--topic does not go with --describe"),
    ("consumer-groups --describe --group a --state --members", "--members does not go with --state"),
    ("consumer-groups --describe --group a --state Stable", "--state takes no value"),
    ("consumer-groups --list --group a", "--group does not go with --list"),
    ("consumer-groups --list --members", "--members goes only with --describe"),
    ("consumer-groups --list --verbose", "--verbose goes only with --describe"),
    ("consumer-groups --describe --group a --type", "--type goes only with --list"),
    ("consumer-groups --delete --group a --topic b", "--topic does not go with --delete"),
    ("consumer-groups --delete-offsets --group a", "--topic is missing for --delete-offsets"),
    ("consumer-groups --delete-offsets --topic a", "--group is missing for --delete-offsets"),
    ("consumer-groups --reset-offsets --topic a --to-latest", "--group or --all-groups is missing"),
    ("consumer-groups --reset-offsets --group a --topic a --to-latest --dry-run --execute", "--dry-run does not go"),
    ("consumer-groups --reset-offsets --group a --topic a --to-latest --to-earliest", "--to-earliest"),
    ("consumer-groups --nonsense", "--nonsense"),
    ("get-offsets --time yesterday", "--time: 'yesterday' is neither"),
    ("get-offsets --topic a --partitions 0,x", "--partitions: '0,x'"),
    ("get-offsets --topic-partitions a:b", "--topic-partitions: 'a:b'"),
    ("get-offsets --topic-partitions a --topic a", "--topic-partitions does not go with --topic"),
    ("delete-records", "--offset-json-file is missing"),
]

#: What we see before asking a broker, and Kafka only after, or not at all.
MORE_WRONG_CALLS = [
    ("topics --create --topic a --partitions 0", "--partitions is 0, but must be at least 1"),
    ("topics --create --topic a --replication-factor 40000", "at most 32767"),
    ("topics --create --topic a --config nothing", "--config: 'nothing' is not of the form name=value"),
    ("topics --create --topic a --replica-assignment 1:1", "names a broker twice"),
    ("topics --create --topic a --replica-assignment 1:2,1", "partition 1 has 1 replicas, but partition 0 2"),
    ("topics --create --topic a --replica-assignment 1,x", "'x' is no list of broker ids"),
    ("topics --list --topic a --topic b", "--topic is given more than once"),
    ("topics --list stray", "stray"),
    ("configs --alter --topic a --add-config a", "--add-config: 'a' is not of the form"),
    ("configs --alter --topic a --add-config 'a b=c'", "'a b' cannot be the name of a setting"),
    ("configs --describe --entity-type topics --entity-name a --entity-name b", "more names than types"),
    (
        "configs --alter --ip not.a.host.invalid --add-config connection_creation_rate=1",
        "neither an address nor a host",
    ),
    ("consumer-groups --list --state awake", "--state: 'awake' is none of PreparingRebalance"),
    ("consumer-groups --list --type share", "--type: 'share' is none of Classic, Consumer"),
    ("consumer-groups --reset-offsets --group a --to-latest --dry-run", "--topic or --all-topics is missing"),
    ("consumer-groups --reset-offsets --group a --topic a --dry-run", "exactly one of --to-earliest"),
]


@pytest.mark.parametrize(("call", "said"), WRONG_CALLS + MORE_WRONG_CALLS)
def test_told_in_one_line(barnabas: Tools, call: str, said: str) -> None:
    tool, *arguments = shlex.split(call)
    told = barnabas(tool, "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("barnabas: ")
    assert said in told.err
    assert told.err.count("\n") == 1
    assert told.err.endswith(f"(see 'barnabas {tool} --help')\n")


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


@needs_kafka()
def test_kafka_refuses_the_same(kafka: KafkaTools) -> None:
    for call, _ in WRONG_CALLS:
        tool, *arguments = shlex.split(call)
        told = kafka(tool, "--bootstrap-server", "127.0.0.1:1", *arguments)
        assert (told.code, told.out.replace("\n", "")) == (1, ""), call


@pytest.mark.parametrize("tool", ["topics", "configs", "consumer-groups", "get-offsets", "delete-records"])
def test_without_any_option_the_help_is_shown(barnabas: Tools, tool: str) -> None:
    told = barnabas(tool)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith(f"Usage: barnabas {tool}")
    assert barnabas(tool, "--version").out.startswith("barnabas ")


@pytest.mark.parametrize(
    "tool", ["topics --list", "configs --describe --topic a", "consumer-groups --list", "get-offsets"]
)
def test_a_cluster_must_be_named(barnabas: Tools, tool: str) -> None:
    told = barnabas(*tool.split(), "--json")
    assert (told.code, told.out) == (1, "")
    assert "--bootstrap-server" in told.err
