"""Topics that come about on first use: internal ones as they must be, others as the defaults say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.log_context import logger
from barnabas.broker.controller.controller_channel import ControllerChannel
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.turns import chunks
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.metadata.internal_topics import InternalTopicOptions, creatable_topic
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

_log = logger("barnabas.broker")

#: How many topics the controller decides on without a break.
_TOPICS_AT_ONCE: Final = 64
_VERSION: Final = api(ApiKey.CREATE_TOPICS).served.high


def internal_topic_options(settings: BrokerSettings) -> InternalTopicOptions:
    return InternalTopicOptions(
        offsets_topic_num_partitions=settings.offsets_topic_num_partitions,
        offsets_topic_replication_factor=settings.offsets_topic_replication_factor,
        offsets_topic_segment_bytes=settings.offsets_topic_segment_bytes,
        transaction_state_log_num_partitions=settings.transaction_state_log_num_partitions,
        transaction_state_log_replication_factor=settings.transaction_state_log_replication_factor,
        transaction_state_log_segment_bytes=settings.transaction_state_log_segment_bytes,
        transaction_state_log_min_isr=settings.transaction_state_log_min_isr,
    )


class AutoTopicCreationManager:
    """Asks the controller for topics that clients name. Who is first starts it, and all of them ask again."""

    def __init__(self, controller: ControllerChannel, settings: Callable[[], BrokerSettings]) -> None:
        self._controller = controller
        self._settings = settings
        self._being_created: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def create_topics(self, names: Sequence[str], caller: AuthorizableRequestContext) -> None:
        """Begin to create topics for somebody who was found allowed to."""
        wanted = [name for name in names if name not in self._being_created]
        if wanted and not self._is_closed:
            self._being_created.update(wanted)
            task = asyncio.get_running_loop().create_task(self._create(wanted, caller))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _create(self, names: Sequence[str], caller: AuthorizableRequestContext) -> None:
        options = internal_topic_options(self._settings())
        try:
            for part in chunks(list(names), _TOPICS_AT_ONCE):
                request = CreateTopicsRequest(topics=[creatable_topic(name, options) for name in part])
                response = await self._controller.submit(request, _VERSION, caller)
                if isinstance(response, CreateTopicsResponse):
                    _tell(response)
        except BrokerError as failure:
            _log.warning("topics were not created: %s", failure)
        except Exception:
            _log.exception("the topics %s were not created", ", ".join(names))
        finally:
            self._being_created.difference_update(names)

    def close(self) -> None:
        """Begin nothing more."""
        self._is_closed = True


def _tell(response: CreateTopicsResponse) -> None:
    for topic in response.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            _log.warning("the topic %s was not created: %s", topic.name, topic.error_message)
