"""The clients for programs with asyncio: the names of `barnabas`, awaited."""

from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
