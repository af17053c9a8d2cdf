"""The log of a partition on disk."""
