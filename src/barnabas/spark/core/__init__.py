"""What the Spark connector decides, as plain functions: no Spark, no client, no clock.

The options and what they mean, positions as Spark stores them, how ranges are split, how much a batch may take, which
filters narrow a read, and the errors that people see.
"""
