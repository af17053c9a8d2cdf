"""Spark's own Kafka connector as an oracle: what it does with the same topic and the same options, ours must do."""
