"""A fetch that is answered in its frame, because its reader keeps up and there is something for it."""

from __future__ import annotations

from typing import Final

from barnabas.base.ids import Uuid
from barnabas.broker._kernel.fetch import answer_ordinary_fetch
from barnabas.broker.context import context_of_frame
from barnabas.broker.services import Services
from barnabas.metadata.authorizer import AclOperation, AllowEverything, Resource
from barnabas.net import Connection
from barnabas.wire.apis import ApiKey

#: Where there is less memory for answers, it is for the rules to share it out.
_ROOM_BYTES: Final = 1024 * 1024


def answer_ordinary(services: Services, connection: Connection, version: int, frame: bytearray) -> bytes | None:
    """The frame of the answer; None, and nothing has happened, if anything in the request is not ordinary."""

    def may_read(topic_key: str | Uuid) -> bool:
        if type(services.authorizer) is AllowEverything:
            return True
        name = topic_key
        if isinstance(name, Uuid):
            name = services.metadata.image.topic_names.get(name, "")
        context = context_of_frame(ApiKey.FETCH, version, connection, frame)
        # Who may not is told, and written of, by the rules.
        return bool(name) and services.authorizer.is_allowed(
            context, AclOperation.READ, Resource.TOPIC, name, log_if_denied=False
        )

    if services.response_room() < _ROOM_BYTES:
        return None
    max_bytes = services.settings.fetch_max_bytes
    return answer_ordinary_fetch(frame, version, services.replica_manager.index, may_read, max_bytes)
