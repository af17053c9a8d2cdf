"""Which partitions are read from where, and by whom in a group."""
