"""Classic groups: members agree through JoinGroup and SyncGroup, and their leader assigns.

A rebalance is soft state: who is at the join barrier, which generation is being made. Its outcome is one record, which
`GroupMetadataManager` replays. Start with `states` (how a group moves), then `rebalance` (the barrier and its timers),
then one file per request.
"""
