"""What a record that the loop's own process writes cannot hold, and why."""

from __future__ import annotations

import os

from canary.machine.devices import DEVICE_ONLY
from canary.record.profile_folder import OFF
from canary.training.recorder.loop import Loop


def notes_of(probe_steps: int) -> list[str]:
    """What a reader must know of a loop whose first `probe_steps` steps are its probe."""
    found = []
    if probe_steps:
        found.append(
            f"the first {probe_steps} steps carry the exact signals and are left out of "
            "the speeds; their kernels were not forced to be deterministic, as those of "
            "canary exec are"
        )
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        found.append(f"rank 0 of {ranks} alone is recorded; canary exec records them all")
    return found


def unmeasured_of(loop: Loop) -> dict[str, str]:
    """Of each figure that is not measured, the reason."""
    found = {"profiler": OFF, **loop.unmeasured()}
    sampled = "sampled from outside of the process, by canary exec"
    found |= dict.fromkeys(("memory.sampled", "perf.cpu_utilization_avg"), sampled)
    if loop.device.type == "cuda":
        found["perf.gpu_utilization_avg"] = sampled
    else:
        found |= dict.fromkeys(DEVICE_ONLY, f"the loop trains on {loop.device.type}")
    return found
