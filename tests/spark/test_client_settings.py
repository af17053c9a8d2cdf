"""Options `kafka.*` become the settings of each client that they are given to."""

from __future__ import annotations

import pytest

from barnabas.client.settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from barnabas.spark.client_settings import settings_for, warn_of_unknown
from barnabas.spark.core.errors import OptionError

GIVEN = {"bootstrap.servers": "h:1", "fetch.max.bytes": "5", "linger.ms": "7", "lingre.ms": "8"}


def test_each_client_gets_what_it_knows_over_the_defaults() -> None:
    assert settings_for(GIVEN, ADMIN_SETTINGS) == {"bootstrap.servers": "h:1"}
    assert settings_for(GIVEN, CONSUMER_SETTINGS) == {"bootstrap.servers": "h:1", "fetch.max.bytes": "5"}
    defaults = {"linger.ms": "1", "batch.size": "2"}
    assert settings_for(GIVEN, PRODUCER_SETTINGS, defaults) == {
        "bootstrap.servers": "h:1",
        "linger.ms": "7",
        "batch.size": "2",
    }


def test_what_makes_no_client_is_refused_with_the_names_of_the_options() -> None:
    wrong = {**GIVEN, "isolation.level": "foo", "fetch.max.bytes": "abc"}
    with pytest.raises(OptionError) as refused:
        settings_for(wrong, CONSUMER_SETTINGS)
    assert "These options make no consumer" in str(refused.value)
    assert "kafka.isolation.level = 'foo'" in str(refused.value)
    assert "kafka.fetch.max.bytes = 'abc'" in str(refused.value)
    # It is no matter of a producer's.
    settings_for(wrong, PRODUCER_SETTINGS)


def test_only_what_no_client_knows_is_told(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_unknown(GIVEN, PRODUCER_SETTINGS, CONSUMER_SETTINGS)
    (warning,) = caplog.messages
    assert "kafka.lingre.ms" in warning
    assert "did you mean kafka.linger.ms?" in warning
