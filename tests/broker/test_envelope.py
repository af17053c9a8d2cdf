"""Requests that a broker forwards: those that change something, and those that are answered where they arrive."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.context import RequestContext
from barnabas.broker.controller.controller_channel import NodeToControllerChannel
from barnabas.broker.handlers import envelope
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.embedded.principal import DefaultPrincipalData
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Request
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.admin import AdminNode


def forwarded(request: Request, version: int, principal: DefaultPrincipalData | None = None) -> Any:
    """What the client is told in the end, or the error of the envelope."""
    data = b"".join(map(bytes, encode_request(request, version, 7, "client")))
    asked = EnvelopeRequest(
        request_data=data,
        request_principal=None if principal is None else bytes(2) + principal.encode(0),
        client_host_address=bytes([127, 0, 0, 1]),
    )
    answer = AdminNode().ask(envelope, asked, 0)
    if answer.error_code:
        return answer.error_code
    correlation_id, response = decode_response(api(request.API_KEY).response, version, answer.response_data)
    assert correlation_id == 7
    return response


def test_the_controller_does_what_it_is_asked_for() -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    told = forwarded(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    assert [each.error_code for each in told.topics] == [0]


def test_what_kafkas_brokers_forward_besides_is_answered_too() -> None:
    told = forwarded(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None), 0)
    assert (told.error_code, told.topics) == (0, [])
    rule = AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    told = forwarded(CreateAclsRequest(creations=[rule]), 3)
    assert [each.error_code for each in told.results] == [ErrorCode.SECURITY_DISABLED]


def test_who_came_by_a_token_gets_no_other() -> None:
    request = CreateDelegationTokenRequest(
        renewers=[], max_lifetime_ms=-1, owner_principal_type=None, owner_principal_name=None
    )
    for by_token, code in (
        (True, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (False, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ):
        ann = DefaultPrincipalData(type="User", name="ann", token_authenticated=by_token)
        assert forwarded(request, 3, ann).error_code == code


def test_a_broker_tells_how_a_client_has_shown_who_it_is() -> None:
    sent: list[DefaultPrincipalData] = []

    class Asked:
        async def request(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
            assert envelope.request_principal is not None
            sent.append(DefaultPrincipalData.decode(envelope.request_principal[2:], 0))
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)

    forward: Any = NodeToControllerChannel._forward
    for by_token in (True, False):
        caller = RequestContext(ApiKey.CREATE_TOPICS, 7, 1, "c", "SASL_SSL", "User:ann", "10.0.0.1", by_token)
        with pytest.raises(BrokerError, match="did not take"):
            asyncio.run(forward(Asked(), CreateTopicsRequest(topics=[], timeout_ms=1), 7, caller))
    assert [(each.name, each.token_authenticated) for each in sent] == [("ann", True), ("ann", False)]


def test_nothing_else_is_taken_out_of_an_envelope() -> None:
    assert forwarded(MetadataRequest(topics=None), 12) == ErrorCode.INVALID_REQUEST
