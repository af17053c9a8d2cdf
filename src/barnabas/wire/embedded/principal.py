"""The principal of a client whose request a broker forwards in an Envelope, preceded by its version as int16."""

from barnabas.wire.message import Message


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str
    name: str
    token_authenticated: bool
