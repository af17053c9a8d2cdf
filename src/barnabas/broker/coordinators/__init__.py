"""What all coordinators of a node have in common: the shards that it leads, at work."""
