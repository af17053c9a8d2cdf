"""A replicated key-value store on `barnabas.raft`: three servers, any one of which may be killed while you write.

HOSTS is the same for all: where each server listens for the others, and its id. It serves clients one port above.

    HOSTS=localhost:16010:1,localhost:16020:2,localhost:16030:3
    python -m examples.raft_kv server $HOSTS 1 --data-dir /tmp/kv1       # and 2 and 3, each in a terminal of its own
    python -m examples.raft_kv client $HOSTS city Prague                 # {"key": "city", "value": "Prague"}
    python -m examples.raft_kv client $HOSTS city
"""
