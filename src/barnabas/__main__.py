"""`python -m barnabas` and the `barnabas` command."""

from __future__ import annotations

import sys


def main() -> int:
    from barnabas.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
