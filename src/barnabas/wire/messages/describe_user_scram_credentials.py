"""DescribeUserScramCredentials (50): which SCRAM credentials users have.

The salts and keys stay on the server.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class UserName(Struct):
    name: str


class DescribeUserScramCredentialsRequest(
    Request, api_key=50, versions="0", flexible="0+", listeners="broker controller"
):
    users: list[UserName] | None


class CredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(Struct):
    user: str
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    credential_infos: list[CredentialInfo]


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")
    results: list[DescribeUserScramCredentialsResult]
