"""How much sweeps over crash points and seeds cover: a share in `make test`, all with `BARNABAS_SWEEP=full`."""

from __future__ import annotations

import os
from typing import Final

IS_FULL: Final = os.environ.get("BARNABAS_SWEEP") == "full"
