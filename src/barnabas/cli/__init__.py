"""The command line: one file per tool, under Kafka's names and with Kafka's options."""
