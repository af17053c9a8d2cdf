"""A simulated world: what production code is handed in place of the real clock, disk and network."""

from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk, SimulatedFile

__all__ = ["SimulatedCrash", "SimulatedDisk", "SimulatedFile"]
