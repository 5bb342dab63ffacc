"""Live anomaly detection, for a canary and for any training loop.

Importing this does not load torch; `AnomalyCallback` loads transformers at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canary.record.alert import SEVERITIES, Alert, Severity
from canary.training.anomaly.advanced import AdvancedAnomalyDetector
from canary.training.anomaly.detectors.common import Detector
from canary.training.anomaly.hooks import AnomalyDetectionHook, StopTraining, profiler_registry
from canary.training.anomaly.observation import Observation

if TYPE_CHECKING:
    from canary.training.anomaly.callback import AnomalyCallback as AnomalyCallback

__all__ = [
    "SEVERITIES",
    "AdvancedAnomalyDetector",
    "Alert",
    "AnomalyCallback",
    "AnomalyDetectionHook",
    "Detector",
    "Observation",
    "Severity",
    "StopTraining",
    "profiler_registry",
]


def __getattr__(name: str) -> Any:
    if name == "AnomalyCallback":
        from canary.training.anomaly.callback import AnomalyCallback

        return AnomalyCallback
    raise AttributeError(f"module 'canary.anomaly' has no attribute {name!r}")
