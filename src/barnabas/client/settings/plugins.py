"""Short names of our plug-ins and the Java classes that they stand in for, so that Java configurations keep working."""

from __future__ import annotations

_SERIALIZATION = {
    "bytes": "ByteArray",
    "string": "String",
    "short": "Short",
    "integer": "Integer",
    "long": "Long",
    "float": "Float",
    "double": "Double",
    "boolean": "Boolean",
    "uuid": "UUID",
    "void": "Void",
}

SERIALIZERS = {name: f"org.apache.kafka.common.serialization.{java}Serializer" for name, java in _SERIALIZATION.items()}
DESERIALIZERS = {
    name: f"org.apache.kafka.common.serialization.{java}Deserializer" for name, java in _SERIALIZATION.items()
}
SERIALIZERS["json"] = "org.apache.kafka.connect.json.JsonSerializer"
DESERIALIZERS["json"] = "org.apache.kafka.connect.json.JsonDeserializer"
ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
REPORTERS = {"jmx": "org.apache.kafka.common.metrics.JmxReporter"}
PARTITIONERS = {"roundrobin": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
