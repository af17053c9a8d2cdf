"""The consumer: partitions shared by a group, records fetched ahead."""
