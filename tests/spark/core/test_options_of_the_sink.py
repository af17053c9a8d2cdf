"""The options of the sink."""

from __future__ import annotations

import pickle

import pytest

from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.options import SinkOptions

BASE = {"kafka.bootstrap.servers": "h:9092"}


def test_defaults() -> None:
    assert SinkOptions.parse(BASE) == SinkOptions(
        client={"bootstrap.servers": "h:9092"},
        topic=None,
        include_timestamp=False,
        delivery="at-least-once",
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
    assert (options.delivery, options.warnings) == ("at-least-once", ())
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka.bootstrap.servers": ""}, ["kafka.bootstrap.servers", "missing"]),
        ({"kafka.key.serializer": "x"}, ["kafka.key.serializer is not supported", "bytes"]),
        ({"kafka.value.serializer": "x"}, ["kafka.value.serializer is not supported", "bytes"]),
        ({"kafka.transactional.id": "x"}, ["kafka.transactional.id is not supported", "delivery"]),
        ({"topic": "  "}, ["topic", "empty"]),
        ({"includeTimestamp": "1"}, ["includeTimestamp", "true and false"]),
        ({"delivery": "exactly-once"}, ["delivery", "comes with transactions", "at-least-once"]),
        ({"delivery": "twice"}, ["delivery", "'twice'", "at-least-once"]),
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
