"""Records a training loop that is not a `transformers.Trainer`: `from canary import Recorder`."""

from canary.training.recorder.recorder import Recorder, Step

__all__ = ["Recorder", "Step"]
