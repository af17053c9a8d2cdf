"""Transactions: which producer a transactional id has, which partitions its transaction is about, and how that ends.

`shard.TransactionCoordinatorShard` is one partition of `__transaction_state` on the coordinators' runtime; `requests`
has what it can be asked. A record holds everything about a transactional id, and `metadata` makes the next one of it.

Start with `states`, then `metadata`, then `end_txn`.
"""
