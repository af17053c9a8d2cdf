"""Envelope (58): a broker forwards a client's request, with the client's principal and address.

The request in it is answered as if the client had sent it here, and the answer travels back in the same way. Only an
answer that nobody has decided, NOT_CONTROLLER, is the envelope's own: the broker then looks for the active controller.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, RemoteProtocolError
from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import FORWARDED
from barnabas.broker.error_responses import error_response
from barnabas.broker.handlers import (
    list_partition_reassignments,
)
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps, awaited
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.embedded.principal import DefaultPrincipalData
from barnabas.wire.headers import RequestHeader, decode_request_header, encode_response
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

API_KEY = ApiKey.ENVELOPE
ANSWER_BYTES_PER_ELEMENT: Final = 0

#: What brokers of Kafka forward although it changes nothing here: it is answered as on the listener itself.
_ANSWERED_HERE: Final = {each.API_KEY: each for each in (list_partition_reassignments,)}


def handle(
    services: CommonServices, context: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse | Steps[EnvelopeResponse]:
    if not services.authorizer.is_allowed(context, AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        header, inner = _open(request)
        caller = _caller(context, header, request)
    except (RemoteProtocolError, ValueError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if caller.api_key not in FORWARDED and caller.api_key not in _ANSWERED_HERE:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    return _answer(services, caller, header, inner)


def _open(request: EnvelopeRequest) -> tuple[RequestHeader, Request]:
    data = memoryview(request.request_data)
    header, start = decode_request_header(data)
    served = api(header.request_api_key)
    if header.request_api_version not in served.served:
        raise RemoteProtocolError(f"{served.key.camel_name} v{header.request_api_version} is not served")
    inner, _ = served.request.decode_prefix(data, header.request_api_version, start)
    return header, inner


def _caller(context: RequestContext, header: RequestHeader, request: EnvelopeRequest) -> RequestContext:
    """The client, by the word of the broker that forwards."""
    principal, by_token = "User:ANONYMOUS", False
    if request.request_principal is not None:
        version = int.from_bytes(request.request_principal[:2], "big")
        data = DefaultPrincipalData.decode(request.request_principal[2:], version)
        principal, by_token = f"{data.type}:{data.name}", data.token_authenticated
    return RequestContext(
        ApiKey(header.request_api_key),
        header.request_api_version,
        header.correlation_id,
        header.client_id,
        context.listener,
        principal,
        str(ip_address(request.client_host_address)),
        by_token,
    )


def _answer(
    services: CommonServices, caller: RequestContext, header: RequestHeader, inner: Request
) -> Steps[EnvelopeResponse]:
    response: Response
    try:
        if caller.api_key in _ANSWERED_HERE:
            response = yield from _answer_here(services, caller, inner)
        else:
            response = yield from awaited(services.controller.submit(inner, caller.version, caller))
    except BrokerError as failure:
        if failure.code is ErrorCode.NOT_CONTROLLER:
            return EnvelopeResponse(error_code=failure.code)
        response = yield from error_response(caller, inner, failure.code, failure.message)
    parts = encode_response(response, caller.version, header.correlation_id)
    return EnvelopeResponse(response_data=b"".join(map(bytes, parts)))


def _answer_here(services: CommonServices, caller: RequestContext, inner: Request) -> Steps[Response]:
    answer: Response | Steps[Response] = _ANSWERED_HERE[caller.api_key].handle(services, caller, inner)
    return answer if isinstance(answer, Response) else (yield from answer)
