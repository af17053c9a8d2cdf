"""Coordinators: the groups of consumers and how far they have read.

A *shard* (`shard.GroupShard`) is one partition of `__consumer_offsets` and all groups whose ids hash to it. It is plain
synchronous Python. Each request goes the same way: *write → records → answer at commit*. An operation stages a `Write`
(records, and the replies that wait for them); whoever runs the shard appends the records and tells it what became of
them. What cannot be answered yet is parked under a token that the runner gave; every token is answered exactly once.
Time is handed in, and `next_deadline_ms` says when the shard wants to be called again.

Start with `states` (how a group moves), then `rebalance` (the join barrier and its timers), then one file per request.
"""
