"""A simulated world: what production code is handed in place of the real clock, disk and network.

`World` has it all. Its parts can be used alone: `VirtualTimeLoop`, `Network`, `SimulatedDisk`, `SimulatedRuntime`.
"""

from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk, SimulatedFile
from barnabas.testing.sim.loop import DeadlockError, LivelockError, SimulationError, VirtualTimeLoop
from barnabas.testing.sim.network import Link, Network
from barnabas.testing.sim.process import Process
from barnabas.testing.sim.runtime import SimulatedRuntime

__all__ = [
    "DeadlockError",
    "Link",
    "LivelockError",
    "Network",
    "Process",
    "SimulatedCrash",
    "SimulatedDisk",
    "SimulatedFile",
    "SimulatedRuntime",
    "SimulationError",
    "VirtualTimeLoop",
]
