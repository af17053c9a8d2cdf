"""Settings by the names of other clients: what a client says of them, and what the guide does, is one and the same."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import kafka
import kafka.admin
import pytest

from barnabas import Consumer, Producer, SettingsError
from barnabas.base.settings.names import nearest_name
from barnabas.client.settings import AdminSettings, ClientSettings, ConsumerSettings, ProducerSettings
from barnabas.client.settings.other_clients import HINTS, OTHER_NAMES, table

GUIDE = Path(__file__).parents[3] / "docs" / "moving-over.md"
NOWHERE = "127.0.0.1:1"


def test_the_guide_has_the_table() -> None:
    assert f"\n\n{table()}\n\n" in GUIDE.read_text(encoding="utf-8"), "put what `table` makes into the guide"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ProducerSettings, (kafka.KafkaProducer, aiokafka.AIOKafkaProducer)),
        (ConsumerSettings, (kafka.KafkaConsumer, aiokafka.AIOKafkaConsumer)),
        (AdminSettings, (kafka.admin.KafkaAdminClient, aiokafka.admin.AIOKafkaAdminClient)),
    ],
)
def test_every_keyword_of_the_others_is_a_setting_or_has_a_hint(
    ours: type[ClientSettings], theirs: tuple[Any, Any]
) -> None:
    by_kafka_python, by_aiokafka = theirs
    keywords = {*by_kafka_python.DEFAULT_CONFIG, *inspect.signature(by_aiokafka.__init__).parameters}
    unknown = {
        name for name in keywords - {"self", "topics"} if name.replace("_", ".") not in {*ours.declared(), *HINTS}
    }
    assert unknown == set()


def test_what_is_recommended_exists() -> None:
    """A single setting that a row recommends is one of ours."""
    everywhere = {**ProducerSettings.declared(), **ConsumerSettings.declared(), **AdminSettings.declared()}
    for each in OTHER_NAMES:
        first = each.here.split("`")[1] if each.here.startswith("`") else ""
        name = first.partition("=")[0].replace("_", ".")
        if "(" not in first and "…" not in first and first:
            assert name in everywhere, each


@pytest.mark.parametrize(
    ("make", "keyword", "hint"),
    [
        (Consumer, "api_version", "in place of kafka-python's and aiokafka's api_version: leave it out"),
        (Consumer, "consumer_timeout_ms", "consumer_timeout_ms: poll(timeout)"),
        (Producer, "max_batch_size", "in place of aiokafka's max_batch_size: batch_size"),
        (Producer, "linger_m", "did you mean linger_ms?"),
    ],
)
def test_a_keyword_of_theirs_is_refused_with_ours(make: Any, keyword: str, hint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        make(bootstrap_servers=NOWHERE, **{keyword: 1})
    assert f"{keyword} (keyword argument): there is no such setting; " in str(refused.value)
    assert hint in str(refused.value)


def test_a_name_with_dots_is_warned_about_with_ours(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Producer({"bootstrap.servers": NOWHERE, "queue.buffering.max.ms": 5}).close()
    assert (
        "queue.buffering.max.ms: unknown setting, ignored unless a plug-in reads it; in place of confluent-kafka's "
        "queue.buffering.max.ms: linger.ms" in (caplog.text)
    )


def test_hints_are_for_names_that_are_not_settings_of_all_clients() -> None:
    everybodys = set(ProducerSettings.declared()) & set(ConsumerSettings.declared()) & set(AdminSettings.declared())
    assert everybodys.isdisjoint(HINTS)
    assert nearest_name("linger.m", ProducerSettings.declared()) == "linger.ms"
