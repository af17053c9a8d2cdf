"""Apache Kafka's system, whole, in Python."""
