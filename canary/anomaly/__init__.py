"""Live anomaly detection, for a canary and for any training loop. Importing this loads no torch."""

from canary.record.alert import SEVERITIES, Alert, Severity
from canary.training.anomaly.advanced import AdvancedAnomalyDetector
from canary.training.anomaly.detectors.common import Detector
from canary.training.anomaly.hooks import AnomalyDetectionHook, StopTraining, profiler_registry
from canary.training.anomaly.observation import Observation

__all__ = [
    "SEVERITIES",
    "AdvancedAnomalyDetector",
    "Alert",
    "AnomalyDetectionHook",
    "Detector",
    "Observation",
    "Severity",
    "StopTraining",
    "profiler_registry",
]
