"""Record sampled completions, or replay them in place of sampling.

With CANARY_RECORD_COMPLETIONS=FILE a launch saves what `generate` returns. With
CANARY_REPLAY_COMPLETIONS=FILE `generate` returns the saved completions. Each prompt gets its first
completion at its first occurrence and so on, however calls are batched and padded. So trainings
that compute differently can be compared on the same completions (teacher forcing). In both cases
sampling has a separate random stream, so that dropout draws the same numbers.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from canary.errors import InputError, RunFailed
from canary.record import jsonio
from canary.record.ranks import rank_path
from canary.training.collectors.aside import Wrapping, kept_random, random_states, uncounted
from canary.training.collectors.batches import unmasked

RECORD = "CANARY_RECORD_COMPLETIONS"
REPLAY = "CANARY_REPLAY_COMPLETIONS"

Tokens = tuple[int, ...]
Completions = dict[Tokens, list[list[int]]]
"""Per prompt, without padding: its completions in the order in which they were sampled."""


@contextmanager
def completions_of(trainer: Any, notes: list[str]) -> Iterator[None]:
    """Record or replay the completions of the training inside, as the environment asks.

    A recording is written only after the training ends well. Raises InputError if the recording is
    missing or both variables are set.
    """
    record, replay = os.environ.get(RECORD), os.environ.get(REPLAY)
    model = getattr(trainer.model, "policy", trainer.model)
    if not (record or replay) or not hasattr(model, "generate") or not _samples(trainer):
        yield
        return
    rank = int(os.environ.get("RANK", "0"))
    if record and replay:
        raise InputError(
            f"{RECORD} and {REPLAY} are both set",
            "unset one: a launch either records completions or replays them",
        )
    if replay:
        path = rank_path(Path(replay), rank)
        Wrapping().wrap(model, "generate", _Replay(model, read(path), path.name))
        notes.append("completions were replayed from a recording, not sampled")
        yield
        return
    assert record
    recording = _Recording(model, int(trainer.args.seed))
    Wrapping().wrap(model, "generate", recording)
    notes.append("completions were recorded as they were sampled")
    yield
    path = rank_path(Path(record), rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    found = [[list(prompt), completions] for prompt, completions in recording.sampled.items()]
    jsonio.replace_file(path, json.dumps(found))


def read(path: Path) -> Completions:
    """Return the recorded completions.

    Raises InputError if the file is missing or holds no completions.
    """
    found, cause = {}, None
    try:
        rows = jsonio.loads(path.read_text(encoding="utf-8"))
        found = {tuple(prompt): completions for prompt, completions in rows}
    except (OSError, ValueError, TypeError) as error:
        cause = error
    if not found:
        words = f"{REPLAY} names {path}, which holds no completions"
        raise InputError(words, f"record them first with {RECORD}") from cause
    return found


def _samples(trainer: Any) -> bool:
    """Return whether the trainer trains on what its model generates."""
    names = {base.__name__ for base in type(trainer).__mro__}
    return hasattr(trainer, "_generate_and_score_completions") or "PPOTrainer" in names


class _Recording:
    """Keeps what `generate` returns. It draws from a random stream that is separate from all other
    draws in the process."""

    def __init__(self, model: Any, seed: int) -> None:
        self._model, self._seed = model, seed
        self._go_on: Callable[[], None] | None = None
        self.sampled: Completions = defaultdict(list)

    def __call__(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        with kept_random():
            if self._go_on is None:
                torch.manual_seed(self._seed)
            else:
                self._go_on()
            try:
                output = original(*args, **kwargs)
            finally:
                self._go_on = random_states()
        eos, _ = _ids_of(self._model, kwargs)
        with uncounted():
            asked, prompts = _prompts(args, kwargs)
            completions = getattr(output, "sequences", output)[:, asked.shape[1] :].tolist()
            for prompt, completion in zip(prompts, completions, strict=True):
                end = next((i + 1 for i, token in enumerate(completion) if token in eos), None)
                self.sampled[prompt].append(completion[:end])
        return output


class _Replay:
    """Returns recorded completions in place of `generate`. `name`: the recording's file name."""

    def __init__(self, model: Any, recorded: Completions, name: str) -> None:
        self._model = model
        self._remaining = {prompt: iter(completions) for prompt, completions in recorded.items()}
        self._name = name

    def __call__(self, original: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return what `generate` would: ids (rows, prompt + longest completion), right-padded."""
        config = kwargs.get("generation_config") or self._model.generation_config
        if kwargs.get("return_dict_in_generate", config.return_dict_in_generate):
            raise RunFailed(
                f"{REPLAY}: this trainer asks generate for more than token ids",
                "failed",
                "only token ids are recorded",
            )
        _, pad = _ids_of(self._model, kwargs)
        with uncounted():
            asked, prompts = _prompts(args, kwargs)
            found = [self._next(prompt) for prompt in prompts]
            longest = max(map(len, found))
            allowed = kwargs.get("max_new_tokens") or config.max_new_tokens
            if allowed is not None and longest > allowed:
                raise self._failed(f"a completion of {longest} tokens; {allowed} are allowed")
            rows = [each + [pad] * (longest - len(each)) for each in found]
            completions = torch.tensor(rows, dtype=asked.dtype, device=asked.device)
            return torch.cat([asked, completions], dim=1)

    def _next(self, prompt: Tokens) -> list[int]:
        if prompt not in self._remaining:
            raise self._failed(f"no completion for a prompt of {len(prompt)} tokens")
        completion = next(self._remaining[prompt], None)
        if completion is None:
            raise self._failed(f"too few completions for a prompt of {len(prompt)} tokens")
        return completion

    def _failed(self, what: str) -> RunFailed:
        return RunFailed(
            f"{REPLAY}: {self._name} holds {what}",
            "failed",
            "record and replay with the same data, seed, steps and lengths",
        )


def _prompts(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[torch.Tensor, list[Tokens]]:
    """Return the prompts (rows, tokens) of a call to `generate`, and each without padding."""
    prompts: torch.Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
    mask = kwargs.get("attention_mask")
    mask = torch.ones_like(prompts) if mask is None else mask
    return prompts, [tuple(row) for row in unmasked(prompts, mask)]


def _ids_of(model: Any, kwargs: dict[str, Any]) -> tuple[frozenset[int], int]:
    """Return the ids that end a completion in this call, and the padding id."""
    configs = (kwargs.get("generation_config"), model.generation_config)
    said = {}
    for name in ("eos_token_id", "pad_token_id"):
        values = (kwargs.get(name), *(getattr(one, name, None) for one in configs))
        said[name] = next((value for value in values if value is not None), None)
    eos, pad = said.values()
    ids = [] if eos is None else list(eos) if isinstance(eos, list | tuple) else [int(eos)]
    return frozenset(map(int, ids)), int(pad if pad is not None else ids[0] if ids else 0)
