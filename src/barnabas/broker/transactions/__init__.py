"""The transaction coordinator at work: shards, requests, and markers on their way to partitions."""
