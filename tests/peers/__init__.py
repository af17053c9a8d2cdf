"""Whole nodes of both kinds in one cluster: ours, and Apache Kafka's."""
