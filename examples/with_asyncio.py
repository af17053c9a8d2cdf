"""Send and read on one event loop, at the same time.

    python examples/with_asyncio.py [HOST:PORT]

`barnabas.aio` has the classes of `barnabas` under the same names; what waits is awaited.
"""

import asyncio
import sys

from barnabas import aio
from barnabas.testing import EmbeddedBroker

MESSAGES = 5


async def produce(bootstrap_servers: str) -> None:
    async with aio.Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(MESSAGES):
            # The first await waits for room in the producer's buffer; the future it returns waits for the broker.
            future = await producer.send("chat", f"message {number}".encode())
            metadata = await future
            print(f"sent message {number} to partition {metadata.partition}")


async def consume(bootstrap_servers: str) -> None:
    read = 0
    async with aio.Consumer(
        "chat", bootstrap_servers=bootstrap_servers, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:  # goes on for ever, unless it is left
            print(f"read {record.value.decode()}")
            read += 1
            if read == MESSAGES:
                break
    # At the end of `async with` the group's offset is committed: a second run reads only what is new.


async def main(bootstrap_servers: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consume(bootstrap_servers))
        tasks.create_task(produce(bootstrap_servers))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with EmbeddedBroker() as broker:  # on a thread of its own
            asyncio.run(main(broker.bootstrap_servers))
