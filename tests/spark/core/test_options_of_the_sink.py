"""The options of the sink."""

from __future__ import annotations

import pickle

import pytest

from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.options import ExactlyOnceOptions, SinkOptions

BASE = {"kafka.bootstrap.servers": "h:9092"}
ONCE = {"delivery": "exactly-once"}


def test_defaults() -> None:
    assert SinkOptions.parse(BASE) == SinkOptions(
        client={"bootstrap.servers": "h:9092"},
        topic=None,
        include_timestamp=False,
        exactly_once=None,
        warnings=(),
    )


def test_every_option_has_a_field_and_names_are_read_in_any_case() -> None:
    options = SinkOptions.parse(
        {
            "KAFKA.Bootstrap.Servers": "h:1",
            "kafka.linger.ms": "5",
            "Topic": " out ",
            "includeheaders": "true",
            "INCLUDETIMESTAMP": "True",
            "delivery": "At-Least-Once",
            "checkpointLocation": "/x",
        }
    )
    assert options.client == {"bootstrap.servers": "h:1", "linger.ms": "5"}
    assert (options.topic, options.include_timestamp) == ("out", True)
    assert (options.exactly_once, options.warnings) == (None, ())
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_options_of_exactly_once() -> None:
    assert SinkOptions.parse({**BASE, "delivery": "Exactly-Once", "kafka.acks": "all"}).exactly_once == (
        ExactlyOnceOptions("sink", "barnabas-spark-control", 0, keeps_other_rows=False, batch=None)
    )
    given = {"sinkName": "orders", "controlTopic": "c", "exactlyOnceFrom": "7", "repeatedBatches": "keep"}
    parsed = SinkOptions.parse({**BASE, **ONCE, **given, "exactlyOnceBatch": "9"})
    assert parsed.exactly_once == ExactlyOnceOptions("orders", "c", 7, keeps_other_rows=True, batch=9)
    assert parsed.warnings == ()
    assert SinkOptions.parse({**BASE, "sinkName": "x"}).warnings == (
        "Option sinkName is passed over: it is for delivery=exactly-once.",
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka.bootstrap.servers": ""}, ["kafka.bootstrap.servers", "missing"]),
        ({"kafka.key.serializer": "x"}, ["kafka.key.serializer is not supported", "bytes"]),
        ({"kafka.value.serializer": "x"}, ["kafka.value.serializer is not supported", "bytes"]),
        ({"kafka.transactional.id": "x"}, ["kafka.transactional.id is not supported", "delivery"]),
        ({"topic": "  "}, ["topic", "empty"]),
        ({"includeTimestamp": "1"}, ["includeTimestamp", "true and false"]),
        ({**ONCE, "kafka.retries": " 0"}, ["kafka.retries", "tries again"]),
        ({**ONCE, "topic": "t", "controlTopic": "t"}, ["topic and controlTopic", "'t'"]),
        ({"delivery": "twice"}, ["delivery", "'twice'", "at-least-once", "exactly-once"]),
        (ONCE | {"kafka.acks": "1"}, ["kafka.acks is '1'", "exactly-once", "Leave kafka.acks out"]),
        (ONCE | {"kafka.enable.idempotence": "False"}, ["kafka.enable.idempotence is 'False'", "writes records twice"]),
        (ONCE | {"kafka.transactional.id": "x"}, ["kafka.transactional.id is not supported", "names its transactions"]),
        (ONCE | {"sinkName": "a.b"}, ["sinkName is 'a.b'", "A-Z"]),
        (ONCE | {"exactlyOnceFrom": "-1"}, ["exactlyOnceFrom"]),
        (ONCE | {"repeatedBatches": "drop"}, ["repeatedBatches is 'drop'", "refuse", "keep"]),
    ],
)
def test_what_is_refused(options: dict[str, str], words: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        SinkOptions.parse({**BASE, **options})
    for word in words:
        assert word in str(caught.value)


def test_settings_that_only_a_source_refuses_pass() -> None:
    assert SinkOptions.parse({**BASE, "kafka.interceptor.classes": "x"}).client["interceptor.classes"] == "x"


def test_a_slip_of_the_pen_is_refused_unless_it_is_to_be_passed_over() -> None:
    with pytest.raises(OptionError, match=r"There is no option topics; did you mean topic\?"):
        SinkOptions.parse({**BASE, "topics": "out"})
    (warning,) = SinkOptions.parse({**BASE, "topics": "out", "strictOptions": False}).warnings
    assert "did you mean topic?" in warning
