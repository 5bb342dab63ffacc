"""Methods of trainers that are wrapped, and what their time is."""

from __future__ import annotations

from canary.config.trainers import TRAINERS

PHASE_OF_METHOD = {
    "get_batch_samples": "data",
    "compute_loss": "forward",
    "_maybe_log_save_evaluate": "logging",
    "_save_checkpoint": "checkpoint",
    "evaluate": "evaluation",
    "_evaluate": "evaluation",
    **{method: phase for row in TRAINERS.values() for method, phase in row.phases.items()},
}
"""Methods of `transformers.Trainer` and of single trainers, and the phase of their time. Those a
trainer does not have are left out."""
LOGPROB_METHODS = ("_get_per_token_logps_and_entropies", "_get_per_token_logps")
"""Log-probabilities of trl's online trainers; the second before trl 0.20."""
