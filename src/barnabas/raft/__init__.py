"""KRaft's Raft: a log that a majority of replicas keeps, led by one of them at a time. It knows nothing of topics."""
