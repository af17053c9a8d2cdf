"""What the tests with Spark stand on: sessions, topics with contents, queries to compare, checkpoints, processes."""
