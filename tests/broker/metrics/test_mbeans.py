"""Every MBean of Kafka's is told under another name, or it is said why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.broker.metrics.kafka_mbeans import REASONS, metrics_of, normalized, told_for
from barnabas.broker.metrics.markdown import table
from barnabas.broker.metrics.naming import family_name
from barnabas.broker.metrics.node_metrics import FAMILIES
from tests.broker.metrics.mbeans import FACTS, dumped
from tests.oracles import needs_kafka

MBEANS = [metric for line in FACTS.read_text().splitlines() for metric in metrics_of(line)]
PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_every_mbean_has_a_family_or_a_reason() -> None:
    assert len(MBEANS) > 200
    assert [each for each in MBEANS if told_for(each, FAMILIES) is None] == []


def test_every_family_that_names_an_mbean_names_one_that_is_there() -> None:
    known = {normalized(each) for each in MBEANS}
    named = [each for each in FAMILIES if each.mbean is not None]
    # What a cluster of two brokers, on which nothing went wrong, does not show.
    assert [each.mbean for each in named if normalized(each.mbean or "") not in known] == []
    assert all(each.name == family_name(each.mbean or "", each.kind) for each in named)
    assert len({each.name for each in FAMILIES}) == len(FAMILIES)


def test_every_reason_is_of_some_mbean() -> None:
    assert [pattern for pattern, _ in REASONS if not any(re.fullmatch(pattern, each) for each in MBEANS)] == []


def test_names_are_what_the_rule_says() -> None:
    assert (
        family_name("kafka.server:type=ReplicaManager,name=IsrShrinksPerSec", "counter")
        == "kafka_server_replicamanager_isrshrinks_total"
    )
    attribute = family_name("kafka.server:type=raft-metrics#log-end-offset", "gauge")
    assert attribute == "kafka_server_raft_metrics_log_end_offset"


def test_the_table_in_the_docs_is_up_to_date() -> None:
    assert table() in PAGE.read_text(), "write it again: python -m barnabas.broker.metrics.markdown docs/metrics.md"


@pytest.mark.slow
@needs_kafka()
def test_the_facts_are_those_of_a_running_kafka() -> None:
    assert _names(dumped()) == _names(FACTS.read_text().splitlines())


def _names(lines: list[str]) -> set[str]:
    return {each.partition("\t")[0] for each in lines}
