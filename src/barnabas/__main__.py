"""The `barnabas` command. Its tools arrive with the parts that they drive; so far it tells its version."""

from __future__ import annotations

import argparse
import sys

from barnabas._version import package_version


def main() -> int:
    parser = argparse.ArgumentParser(prog="barnabas", description="Apache Kafka's system, whole, in Python.")
    parser.add_argument("--version", action="version", version=f"barnabas {package_version()}")
    parser.parse_args()
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
