"""A node says at its start where anybody may come in: controllers that believe everybody, and rules for nobody."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.broker.node import Node
from barnabas.broker.settings import BrokerSettings

_OUTSIDE, _INSIDE = "10.0.0.1", "127.0.0.1"
_CONTROLLERS = "believes whoever connects"
_ANONYMOUS = "everybody is User:ANONYMOUS"


def _warnings(
    caplog: pytest.LogCaptureFixture,
    protocols: dict[str, str],
    *,
    host: str = _OUTSIDE,
    has_authorizer: bool = True,
    knows_peers: bool = False,
) -> dict[str, list[str]]:
    """By listener, what a node with these would say of it."""
    settings = BrokerSettings.load(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": ",".join(f"{name}://{host}:{9092 + place}" for place, name in enumerate(protocols)),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": "CLIENTS",
            "controller.listener.names": "CONTROLLERS",
            "controller.quorum.voters": f"1@{host}:9093",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
            **{
                f"listener.name.{name.lower()}.scram-sha-256.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required "
                    'username="node" password="node-pw-7Qx~";'
                )
                for name, protocol in protocols.items()
                if protocol.startswith("SASL_")
            },
        }
    )
    node = SimpleNamespace(
        _static_settings=settings,
        endpoints={each.listener: (host, each.port) for each in settings.endpoints},
        _authorizer=object() if has_authorizer else None,
        _tls=SimpleNamespace(knows_peers=lambda listener: knows_peers and protocols[listener] == "SSL"),
    )
    caplog.clear()
    Node._warn_of_open_listeners(node)  # type: ignore[arg-type]
    assert {each.levelname for each in caplog.records} <= {"WARNING"}
    told = [each.getMessage() for each in caplog.records]
    return {
        name: [
            words for words in (_CONTROLLERS, _ANONYMOUS) if any(f"{name} at {host}" in t and words in t for t in told)
        ]
        for name in protocols
    }


def test_what_anybody_can_reach_is_told(caplog: pytest.LogCaptureFixture) -> None:
    open_to_all = {"CLIENTS": "PLAINTEXT", "CONTROLLERS": "PLAINTEXT"}
    assert _warnings(caplog, open_to_all) == {"CLIENTS": [_ANONYMOUS], "CONTROLLERS": [_CONTROLLERS, _ANONYMOUS]}
    assert _warnings(caplog, open_to_all, has_authorizer=False) == {"CLIENTS": [], "CONTROLLERS": [_CONTROLLERS]}
    assert _warnings(caplog, {"CLIENTS": "SSL", "CONTROLLERS": "SASL_PLAINTEXT"}) == {
        "CLIENTS": [_ANONYMOUS],  # without a certificate that is asked for, TLS shows nobody
        "CONTROLLERS": [],
    }


def test_what_asks_who_is_there_is_not(caplog: pytest.LogCaptureFixture) -> None:
    nothing: dict[str, list[str]] = {"CLIENTS": [], "CONTROLLERS": []}
    assert _warnings(caplog, {"CLIENTS": "PLAINTEXT", "CONTROLLERS": "PLAINTEXT"}, host=_INSIDE) == nothing
    assert _warnings(caplog, {"CLIENTS": "SASL_PLAINTEXT", "CONTROLLERS": "SASL_PLAINTEXT"}) == nothing
    assert _warnings(caplog, {"CLIENTS": "SSL", "CONTROLLERS": "SSL"}, knows_peers=True) == nothing
