"""AlterUserScramCredentials (51): changes or removes SCRAM credentials.

The client salts and hashes; the password itself never travels.
"""

from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int8, Int16, Int32


class ScramCredentialDeletion(Struct):
    name: str
    mechanism: Int8


class ScramCredentialUpsertion(Struct):
    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsRequest(Request, api_key=51, versions="0", flexible="0+", listeners="broker controller"):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResult(Struct):
    user: str
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default="")


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterUserScramCredentialsResult]
