"""Drivers and executors that die: tables must be exact all the same, and topics complete.

`driver` is a program as users write it; `stories` starts it, kills it or its executors, starts it again, and looks at
what came out. `make test` runs a short form. The full one kills many times, at moments that the seeds choose:

    python -m tests.spark.crashes --seeds 20
"""
