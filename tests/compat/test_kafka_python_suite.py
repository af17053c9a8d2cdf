"""What kafka-python's authors expect of a broker: their own integration tests, against ours.

`BARNABAS_COMPAT_BROKER=kafka` runs them against Apache Kafka, where they must pass alike.
"""

from __future__ import annotations

import pytest

from barnabas import Admin, NewTopic
from tests.compat.kafka_python_suite import INTEGRATION, Outcome, SuiteUnavailableError, run_suite, suite_folder
from tests.oracles import other_process
from tests.ports import free_ports

_STARTED = "wants to start a broker by itself: see the test that lets it"
_REPLICAS = "the node has no reassignment or election of replicas yet"

#: What does not run, and why. All else must pass.
NOT_RUN = {
    "test_ssl_integration.py": _STARTED,
    "test_sasl_integration.py": _STARTED,
    "test_consumer_integration.py::test_kafka_consumer_offsets_for_time_old": "is for Kafka before 0.10.1",
    "test_admin_integration.py::test_create_describe_delete_acls": _STARTED,
    "test_admin_integration.py::test_alter_partition_reassignments": _REPLICAS,
    "test_admin_integration.py::test_alter_replica_log_dirs": "the node does not move replicas between directories yet",
    "test_admin_integration.py::test_list_config_resources": "the node has no resources beside topics and brokers yet",
}
EXPECTED = 51

#: What is about security; and how many tests that are.
SECURITY = (
    "test_ssl_integration.py",
    "test_sasl_integration.py",
    "test_admin_integration.py::test_create_describe_delete_acls",
)
EXPECTED_OF_SECURITY = 12

#: The suite runs in a process of its own.
pytestmark = other_process()


def _needs_the_suite() -> None:
    try:
        suite_folder()
    except SuiteUnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def outcomes(node: str) -> dict[str, Outcome]:
    _needs_the_suite()
    # It is made by the first who writes to it, and they take for granted that it then has several partitions.
    with Admin(bootstrap_servers=node) as admin:
        admin.create_topics([NewTopic("transactional_test_topic", 4, 1)])
    return run_suite(node, without=[f"{INTEGRATION}/{each}" for each in NOT_RUN])


def test_the_clients_own_tests_pass(outcomes: dict[str, Outcome]) -> None:
    wrong = [f"{each.name}: {each.result}: {each.text}" for each in outcomes.values() if each.result != "passed"]
    assert not wrong, "\n".join(wrong)


def test_none_of_them_is_missing(outcomes: dict[str, Outcome]) -> None:
    assert len(outcomes) >= EXPECTED


@pytest.mark.slow
def test_their_tests_of_tls_sasl_and_acls_pass_on_nodes_that_they_start() -> None:
    """With stores of Java's keytool, users in settings and in the metadata log, and our tools in place of Kafka's."""
    _needs_the_suite()
    found = run_suite(None, tests=[f"{INTEGRATION}/{each}" for each in SECURITY], timeout_s=600)
    wrong = [f"{each.name}: {each.result}: {each.text}" for each in found.values() if each.result != "passed"]
    assert not wrong, "\n".join(wrong)
    assert len(found) == EXPECTED_OF_SECURITY


def test_they_fail_where_nobody_listens() -> None:
    _needs_the_suite()
    sample = [
        f"{INTEGRATION}/{each}"
        for each in (
            "test_consumer_integration.py::test_consumer",
            "test_consumer_integration.py::test_kafka_version_infer",
            "test_admin_integration.py::test_list_partition_offsets",
            "test_producer_integration.py::test_idempotent_producer",
        )
    ]
    found = run_suite(f"127.0.0.1:{free_ports(1)[0]}", tests=sample, impatient=True)
    assert [each.result for each in found.values() if each.result not in ("failed", "error")] == []
    assert len(found) == len(sample)
