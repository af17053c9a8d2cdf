"""Coordinators: groups of consumers and how far they have read; one runtime for whatever else is coordinated.

`runtime` is generic: operations return records and an answer, the records are appended, replayed, and the answer is
given when they are committed. `shard.GroupCoordinatorShard` is one partition of `__consumer_offsets` on it, and all
groups whose ids hash to it; `requests` has what it can be asked. It is plain synchronous Python. What cannot be
answered yet is parked under a token that whoever runs the shard gave; every token is answered exactly once.

Start with `runtime`, then `group_metadata_manager` (which state is replayed and which is soft), then `classic`.
"""
