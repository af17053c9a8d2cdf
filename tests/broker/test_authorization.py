"""The authorizer of a node: plug-ins, its log, and who is asked at all."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, SettingsError
from barnabas.base.settings import InvalidSettingsError
from barnabas.broker.authorization import AUTHORIZER_LOG, AclAuthorizer, PluginAuthorizer, make_authorizer
from barnabas.broker.context import OwnRequestContext, RequestContext
from barnabas.broker.controller.controller_channel import broker_caller
from barnabas.broker.handlers import (
    begin_quorum_epoch,
    end_quorum_epoch,
    envelope,
    fetch_metadata,
    fetch_snapshot,
    update_raft_voter,
    vote,
)
from barnabas.metadata.access_images import StandardAcl
from barnabas.metadata.authorizer import AclOperation, AclPermissionType, PatternType, Resource
from barnabas.metadata.delta import everything
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.loader import MetadataUpdate
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.snapshot import acl_record
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.envelope import EnvelopeRequest
from tests.broker.admin import AdminNode, Deny, node_settings
from tests.metadata.clusters import uuid

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CALLER = RequestContext(ApiKey.FETCH, 12, 1, "c", "PLAINTEXT", "User:ann", "10.0.0.1")


def standard(*acls: StandardAcl, **settings: str) -> AclAuthorizer:
    authorizer = make_authorizer(node_settings(authorizer_class_name=STANDARD, **settings))
    assert isinstance(authorizer, AclAuthorizer)
    builder = ImageBuilder(ClusterImage())
    for number, acl in enumerate(acls, 1):
        builder.replay(acl_record(uuid(number), acl))
    image = builder.build(0, 0)
    authorizer.on_metadata_update(MetadataUpdate(image, everything(image), 0, 0))
    return authorizer


def allow(name: str, operation: AclOperation) -> StandardAcl:
    return StandardAcl(Resource.TOPIC, name, PatternType.LITERAL, "User:ann", "*", operation, AclPermissionType.ALLOW)


def asks(authorizer: Any, operation: AclOperation = AclOperation.READ, name: str = "t", **others: bool) -> bool:
    outcome: bool = authorizer.is_allowed(CALLER, operation, Resource.TOPIC, name, **others)
    return outcome


def test_kafkas_class_goes_by_the_rules_in_the_log() -> None:
    authorizer = standard(allow("t", AclOperation.READ))
    assert asks(authorizer)
    assert asks(authorizer, AclOperation.DESCRIBE)
    assert not asks(authorizer, AclOperation.WRITE)
    assert not authorizer.is_allowed_by_type(CALLER, AclOperation.WRITE, Resource.TOPIC)
    assert authorizer.is_allowed_by_type(CALLER, AclOperation.READ, Resource.TOPIC)


def test_super_users_and_what_nobody_mentions_follow_the_settings() -> None:
    assert asks(standard(super_users="User:bob;User:ann"), AclOperation.WRITE)
    assert asks(standard(**{"allow.everyone.if.no.acl.found": "true"}), AclOperation.WRITE)
    assert not asks(standard(), AclOperation.WRITE)
    with pytest.raises(InvalidSettingsError, match="'ann' is no principal"):
        standard(super_users="ann")


def test_no_authorizer_is_none() -> None:
    assert make_authorizer(node_settings()) is None


def test_denied_and_allowed_are_written_as_kafka_writes_them(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = standard(allow("t", AclOperation.READ), super_users="User:root")
    with caplog.at_level(logging.DEBUG, AUTHORIZER_LOG):
        asks(authorizer)
        asks(authorizer, AclOperation.WRITE)
        asks(authorizer, AclOperation.WRITE, log_if_denied=False)
        asks(authorizer, log_if_allowed=False)
        authorizer.is_allowed(CALLER._replace(principal="User:root"), AclOperation.ALTER, Resource.CLUSTER, "c")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "DEBUG",
            "Principal = User:ann is Allowed operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:t for "
            "request = Fetch with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, "
            "resourceName=t, patternType=LITERAL, principal=User:ann, host=*, operation=READ, permissionType=ALLOW))",
        ),
        (
            "INFO",
            "Principal = User:ann is Denied operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:t for "
            "request = Fetch with resourceRefCount = 1 based on rule DefaultDeny",
        ),
        (
            "DEBUG",
            "Principal = User:root is Allowed operation = ALTER from host = 10.0.0.1 on resource = "
            "Cluster:LITERAL:c for request = Fetch with resourceRefCount = 1 based on rule SuperUser",
        ),
    ]


def test_a_node_does_not_ask_who_it_is_itself() -> None:
    authorizer = standard()
    for own in (broker_caller(1), OwnRequestContext(*CALLER)):
        assert authorizer.is_allowed(own, AclOperation.CLUSTER_ACTION, Resource.CLUSTER, "kafka-cluster")
    assert not CALLER.is_own


def test_until_the_rules_are_loaded_only_super_users_are_served() -> None:
    authorizer = standard(allow("t", AclOperation.READ), super_users="User:root")
    is_loaded = False
    authorizer.is_ready = lambda: is_loaded
    assert authorizer.is_allowed(CALLER._replace(principal="User:root"), AclOperation.READ, Resource.TOPIC, "t")
    with pytest.raises(BrokerError, match="not loaded yet"):
        asks(authorizer)
    is_loaded = True
    assert asks(authorizer)


class Plugin:
    """Lets people with short names do everything."""

    def configure(self, settings: Any) -> None:
        self.longest = int(settings["short.name"])

    def is_allowed(self, caller: Any, operation: AclOperation, resource_type: Resource, resource_name: str) -> bool:
        if resource_name == "bad":
            raise RuntimeError("it fails")
        return len(caller.principal) <= self.longest


class NoPlugin:
    pass


@pytest.mark.parametrize("name", [f"{__name__}:Plugin", f"{__name__}.Plugin"])
def test_a_plugin_in_python_decides(name: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = node_settings(authorizer_class_name=name, short_name="8")
    authorizer = make_authorizer(settings)
    assert isinstance(authorizer, PluginAuthorizer)
    assert asks(authorizer)
    assert not asks(authorizer, name="bad")
    assert not authorizer.is_allowed_by_type(CALLER, AclOperation.WRITE, Resource.TOPIC)
    assert not authorizer.is_allowed(CALLER._replace(principal="User:longer"), AclOperation.READ, Resource.TOPIC, "t")
    assert "failed, which denies" in caplog.text
    assert not authorizer.keeps_acls


@pytest.mark.parametrize("name", ["no.such.Authorizer", f"{__name__}:Nothing", f"{__name__}:NoPlugin"])
def test_an_authorizer_that_cannot_be_had_keeps_the_node_from_starting(name: str) -> None:
    with pytest.raises(SettingsError, match=r"authorizer\.class\.name"):
        make_authorizer(node_settings(authorizer_class_name=name))


@pytest.mark.parametrize(
    "handler", [vote, begin_quorum_epoch, end_quorum_epoch, fetch_metadata, fetch_snapshot, update_raft_voter]
)
def test_only_nodes_speak_about_the_metadata_log(handler: Any) -> None:
    services = SimpleNamespace(authorizer=Deny(AclOperation.CLUSTER_ACTION))
    with pytest.raises(BrokerError) as refusal:
        handler.handle(services, CALLER, None)
    assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_an_envelope_is_opened_for_brokers_alone() -> None:
    node = AdminNode()
    node.authorizer = Deny(AclOperation.CLUSTER_ACTION)
    asked = EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=bytes(4))
    assert node.ask(envelope, asked, 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
