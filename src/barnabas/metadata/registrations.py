"""What brokers and controllers both say of themselves: where they listen, and which levels of features they support. As
it comes in requests, and as images hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from barnabas.metadata.image import BrokerEndpointImage
from barnabas.wire.stored.cluster_metadata import BrokerEndpoint, BrokerFeature, ControllerEndpoint, ControllerFeature

E = TypeVar("E", BrokerEndpoint, ControllerEndpoint)
F = TypeVar("F", BrokerFeature, ControllerFeature)


class AnnouncedListener(Protocol):
    name: str
    host: str
    port: int
    security_protocol: int


class AnnouncedFeature(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


def requested_end_points(kind: type[E], listeners: Iterable[AnnouncedListener]) -> list[E]:
    return end_points(
        kind, [BrokerEndpointImage(each.name, each.host, each.port, each.security_protocol) for each in listeners]
    )


def requested_features(kind: type[F], features: Iterable[AnnouncedFeature]) -> list[F]:
    return supported_features(
        kind, {each.name: (each.min_supported_version, each.max_supported_version) for each in features}
    )


def end_points(kind: type[E], endpoints: Iterable[BrokerEndpointImage]) -> list[E]:
    return [
        kind(name=each.listener, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for each in endpoints
    ]


def supported_features(kind: type[F], levels: Mapping[str, tuple[int, int]]) -> list[F]:
    return [
        kind(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in levels.items()
    ]
