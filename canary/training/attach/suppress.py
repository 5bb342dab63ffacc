"""Stops a training that is cut short or repeated from saving, pushing and uploading."""

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
"""Per module a class and its methods that save or push a model."""

FUNCTIONS = (
    ("torch", "save"),
    ("safetensors.torch", "save_file"),
    ("safetensors.torch", "save_model"),
    ("safetensors.numpy", "save_file"),
)
"""Modules and their functions that write weights."""

PUSHES = {
    "transformers.trainer": ("Trainer", ("init_hf_repo", "_push_from_checkpoint", "push_to_hub")),
    "transformers.utils.hub": ("PushToHubMixin", ("push_to_hub",)),
    # Every upload ends in `create_commit`, whatever function a script calls.
    "huggingface_hub.hf_api": (
        "HfApi",
        ("create_repo", "upload_file", "upload_folder", "create_commit"),
    ),
}
"""The same for pushes only. They do nothing from the start of a training that is cut short."""
LOCAL_TRACKERS = ("tensorboard", "codecarbon")
"""Trackers that only write files."""


class Suppression:
    """Replaces methods by ones that do nothing, and reports each once. `notes` are the reports."""

    def __init__(self, say: Callable[[str], None] | None) -> None:
        """`say` prints a report; None: nothing is printed."""
        self._say = say
        self._done: set[str] = set()
        self.notes: list[str] = []

    def saves(self) -> None:
        """Stop saves and pushes of trainers, models, tokenizers and adapters from here on."""
        self._silence_all(SAVES)
        for module_name, function in FUNCTIONS:
            module = sys.modules.get(module_name)
            if module is not None and function not in self._done:
                name = f"{module_name}.{function}"
                setattr(module, function, functools.partial(self._nothing, name))

    def pushes(self) -> None:
        """Stop pushes to a hub from here on."""
        self._silence_all(PUSHES)

    def uploads(self, trainer: Any) -> None:
        """Remove the trackers that upload from this trainer."""
        from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

        for name, callback in INTEGRATION_TO_CALLBACK.items():
            if name in LOCAL_TRACKERS or not isinstance(callback, type):
                continue
            if trainer.pop_callback(callback) is not None:
                self._report(f"{name} does not log this training: it is cut short")

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
        self._report(f"{method.lstrip('_')} does nothing: the training is cut short")

    def _report(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            if self._say is not None:
                self._say(text)


def _with_subclasses(cls: Any) -> set[Any]:
    found = {cls}
    for child in cls.__subclasses__():
        found |= _with_subclasses(child)
    return found


class StopAfter(TrainerCallback):
    """Ends a training after `steps` optimizer steps."""

    def __init__(self, steps: int, on_cut: Callable[[], None]) -> None:
        self._steps = steps
        self._on_cut = on_cut

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Stop through the trainer's control, so that the schedule keeps its length."""
        if state.global_step >= self._steps:
            control.should_training_stop = True
            if state.global_step < state.max_steps:
                self._on_cut()
        return control
