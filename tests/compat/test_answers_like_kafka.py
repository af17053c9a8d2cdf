"""Requests that real clients seldom or never send, to Kafka and to our node: every version, the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from barnabas.wire.json_form import to_json
from tests.compat.duel import COMPACTED, Ask, Side, both, differences
from tests.compat.duel_admin_cases import CONFIGS, TOPICS
from tests.compat.duel_data_cases import GROUPS, RECORDS, batch_of, commit_of, coordinator_of, produced
from tests.compat.duel_quota_cases import QUOTAS
from tests.compat.duel_unbuilt_cases import UNBUILT
from tests.compat.samples import TIME_MS, until
from tests.oracles import needs_kafka

AREAS = {
    "topics": TOPICS,
    "records": RECORDS,
    "configs": CONFIGS,
    "groups": GROUPS,
    "unbuilt": UNBUILT,
    "quotas": QUOTAS,
}
CASES = {f"{area}: {name}": ask for area, cases in AREAS.items() for name, ask in cases.items()}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with both(tmp_path_factory.mktemp("duel")) as sides:
        for side in sides:
            _warm_up(side)
        yield sides


def _warm_up(side: Side) -> None:
    """Three records, a producer with a state, and the coordinator awake: what a broker says in its first second is
    another story."""
    for number in range(3):
        until(partial(_is_done, side, produced(batch_of(time_ms=TIME_MS + 10 * number)), 9))
    idempotent = batch_of(producer_id=7, producer_epoch=2, base_sequence=0)
    until(partial(_is_done, side, produced(idempotent, COMPACTED), 9))
    until(partial(_is_done, side, coordinator_of("commits"), 3))
    until(partial(_is_done, side, commit_of(), 9))
    until(partial(_is_done, side, GROUPS["producer id"], 4))


def _is_done(side: Side, ask: Ask, version: int) -> bool:
    return "'errorCode': 0" in str(to_json(side.call(ask(side)[0], version), version))


@needs_kafka()
@pytest.mark.parametrize("name", CASES)
def test_our_node_answers_as_kafka_does(sides: tuple[Side, Side], name: str) -> None:
    kafka, ours = sides
    assert differences(kafka, ours, CASES[name]) == []
