"""DescribeUserScramCredentials (50): by which mechanisms users log in with SCRAM; never with what."""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.metadata.scram_users import describe_user_scram_credentials
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

API_KEY = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
MAX_ELEMENTS: Final = 10_000


def handle(
    services: CommonServices, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not services.authorizer.is_allowed(context, AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # As in Kafka: one for each user that was asked for, without the name.
        denied = DescribeUserScramCredentialsResult(user="", error_code=code, error_message=None, credential_infos=[])
        results = [denied] * len(request.users or ())
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=code.text, results=results)
    users = None if request.users is None else [each.name for each in request.users]
    return describe_user_scram_credentials(services.metadata.image, users)
