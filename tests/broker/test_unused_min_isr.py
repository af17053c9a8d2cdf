"""`min.insync.replicas` in a node's file, while the cluster has one for all: nobody may rely on what does nothing."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.configs.config_resources import tell_unused_min_isr
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.replay import ImageBuilder
from barnabas.wire.stored.cluster_metadata import FeatureLevelRecord
from tests.broker.metadata_files import config, node_settings


def image(*, elr: int, min_isr: str | None) -> ClusterImage:
    builder = ImageBuilder(ClusterImage())
    builder.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=elr))
    if min_isr is not None:
        builder.replay(config("min.insync.replicas", min_isr))
    return builder.build(1, 1)


def told(caplog: pytest.LogCaptureFixture, found: ClusterImage, **settings: Any) -> list[str]:
    tell_unused_min_isr(node_settings(**settings), found)
    return caplog.messages


def test_another_number_than_the_clusters_is_told_with_the_command_that_helps(caplog: pytest.LogCaptureFixture) -> None:
    [line] = told(caplog, image(elr=1, min_isr="1"), min_insync_replicas=2)
    assert line.startswith("min.insync.replicas=2 in the settings has no effect")
    assert "--entity-default --add-config min.insync.replicas=2'" in line


@pytest.mark.parametrize(
    ("found", "settings"),
    [
        (image(elr=1, min_isr="2"), {"min_insync_replicas": 2}),
        (image(elr=1, min_isr="2"), {}),
        (image(elr=0, min_isr="1"), {"min_insync_replicas": 2}),
        (image(elr=0, min_isr=None), {"min_insync_replicas": 2}),
    ],
)
def test_nothing_is_told_where_it_is_the_same_or_counts(
    caplog: pytest.LogCaptureFixture, found: ClusterImage, settings: dict[str, int]
) -> None:
    assert told(caplog, found, **settings) == []
