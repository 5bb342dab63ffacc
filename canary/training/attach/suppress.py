"""What a training that the canary cuts short, or repeats, must not do: save, push, upload."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback

SAVES = {
    "transformers.trainer": (
        "Trainer",
        (
            "save_model",
            "save_state",
            "save_metrics",
            "_save_checkpoint",
            "create_model_card",
            "push_to_hub",
        ),
    ),
    "transformers.modeling_utils": ("PreTrainedModel", ("save_pretrained", "push_to_hub")),
    "transformers.tokenization_utils_base": (
        "PreTrainedTokenizerBase",
        ("save_pretrained", "push_to_hub"),
    ),
    "transformers.processing_utils": ("ProcessorMixin", ("save_pretrained", "push_to_hub")),
    "peft.peft_model": ("PeftModel", ("save_pretrained", "push_to_hub")),
}
"""Classes, by module, and their methods that write a model or send it away."""

FUNCTIONS = (
    ("torch", "save"),
    ("safetensors.torch", "save_file"),
    ("safetensors.torch", "save_model"),
    ("safetensors.numpy", "save_file"),
)
"""Functions that write weights, by module."""

PUSHES = {
    "transformers.trainer": ("Trainer", ("init_hf_repo", "_push_from_checkpoint", "push_to_hub")),
    "transformers.utils.hub": ("PushToHubMixin", ("push_to_hub",)),
    # All that uploads comes to `create_commit`, whatever name a script has for it.
    "huggingface_hub.hf_api": (
        "HfApi",
        ("create_repo", "upload_file", "upload_folder", "create_commit"),
    ),
}
"""The same for what sends away: these do nothing from the start of a training cut short."""
LOCAL_TRACKERS = ("tensorboard", "codecarbon")
"""Trackers that only write files."""


class Suppression:
    """Turns methods into ones that do nothing and say so once. `told` holds what was said."""

    def __init__(self, say: Callable[[str], None] | None) -> None:
        """`say` is None where nobody is to hear of it: in a probe."""
        self._say = say
        self._done: set[str] = set()
        self.told: list[str] = []

    def saves(self) -> None:
        """From here on nothing is saved or pushed, by trainers, models, tokenizers, adapters."""
        self._silence_all(SAVES)
        for module_name, function in FUNCTIONS:
            module = sys.modules.get(module_name)
            if module is not None and function not in self._done:
                name = f"{module_name}.{function}"
                setattr(module, function, functools.partial(self._nothing, name))

    def pushes(self) -> None:
        """From here on nothing is pushed to a hub."""
        self._silence_all(PUSHES)

    def uploads(self, trainer: Any) -> None:
        """Trackers that send what they get elsewhere do not hear of this training."""
        from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

        for name, callback in INTEGRATION_TO_CALLBACK.items():
            if name in LOCAL_TRACKERS or not isinstance(callback, type):
                continue
            if trainer.pop_callback(callback) is not None:
                self._tell(f"{name} does not hear of this training: it is not run to its end")

    def _silence_all(self, classes: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
        for module_name, (class_name, methods) in classes.items():
            owner = getattr(sys.modules.get(module_name), class_name, None)
            for cls in _with_subclasses(owner) if owner is not None else ():
                for method in methods:
                    if method in cls.__dict__:
                        self._silence(cls, method)

    def _silence(self, cls: Any, method: str) -> None:
        key = f"{cls.__module__}.{cls.__qualname__}.{method}"
        if key in self._done:
            return
        self._done.add(key)

        @functools.wraps(cls.__dict__[method])
        def nothing(instance: Any, *args: Any, **kwargs: Any) -> None:
            self._nothing(method)

        setattr(cls, method, nothing)

    def _nothing(self, method: str, *args: Any, **kwargs: Any) -> None:
        self._tell(f"{method.lstrip('_')} does nothing: the training is not run to its end")

    def _tell(self, text: str) -> None:
        if text not in self.told:
            self.told.append(text)
            if self._say is not None:
                self._say(text)


def _with_subclasses(cls: Any) -> set[Any]:
    found = {cls}
    for child in cls.__subclasses__():
        found |= _with_subclasses(child)
    return found


class StopAfter(TrainerCallback):
    """Ends a training after so many optimizer steps."""

    def __init__(self, steps: int, on_cut: Callable[[], None]) -> None:
        self._steps = steps
        self._on_cut = on_cut

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Through the trainer's own control; the schedule stays as long as it was."""
        if state.global_step >= self._steps:
            control.should_training_stop = True
            if state.global_step < state.max_steps:
                self._on_cut()
        return control
