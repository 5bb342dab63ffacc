"""Known faults in a few lines each: whether a fault shows in the versions that are here."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canary.advisories.advisory import Advisory
from canary.advisories.condition import Known, holds, in_range
from canary.advisories.keys import PACKAGE
from canary.machine.packages import package_versions

Shows = Callable[[Path], bool]
"""Takes an empty folder; returns whether the fault shows."""

VOCABULARY = 64


def is_affected(one: Advisory) -> bool:
    """Whether the versions that are installed here have the fault."""
    versions = package_versions()
    others = {key: test for key, test in one.condition.items() if key.startswith(PACKAGE)}
    return in_range(versions[one.package], one.versions) and all(
        holds(key, test, Known(versions)) for key, test in others.items()
    )


def _config(**changed: Any) -> Any:
    from transformers import LlamaConfig

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return LlamaConfig(vocab_size=VOCABULARY, **sizes, **heads, **ids, **changed)


def _causal(**changed: Any) -> Any:
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(_config(**changed))


def _trained(folder: Path, model: Any, rows: Any, **arguments: Any) -> Any:
    """Return a trainer of transformers after its training."""
    from transformers import Trainer, TrainingArguments

    plain = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    once = {"max_steps": 1, "logging_steps": 1, "seed": 0, "max_grad_norm": 1e9}
    made = TrainingArguments(str(folder), **{**plain, **once, **arguments})
    kind = arguments.pop("trainer", Trainer)
    trainer = kind(model, made, train_dataset=rows)
    trainer.train()
    return trainer


def _logged(trainer: Any, name: str) -> list[float]:
    return [float(row[name]) for row in trainer.state.log_history if name in row]


def _ids(row: int, length: int) -> list[int]:
    return [3 + (7 * row + at) % (VOCABULARY - 4) for at in range(length)]


def _scales_with_micro_batches(
    folder: Path, make: Callable[[], Any], rows: Any, **arguments: Any
) -> bool:
    """Whether eight micro-batches of one row have over twice the gradient of one of eight."""
    whole, split = (
        _logged(
            _trained(
                folder / str(size),
                make(),
                rows,
                per_device_train_batch_size=size,
                gradient_accumulation_steps=8 // size,
                **arguments,
            ),
            "grad_norm",
        )[0]
        for size in (8, 1)
    )
    return split > 2 * whole


def classifier_accumulation(folder: Path) -> bool:
    import torch
    from transformers import LlamaForSequenceClassification

    def make() -> Any:
        torch.manual_seed(0)
        return LlamaForSequenceClassification(_config(num_labels=2))

    rows = [
        {"input_ids": _ids(row, 6), "attention_mask": [1] * 6, "labels": row % 2}
        for row in range(8)
    ]
    return _scales_with_micro_batches(folder, make, rows)


def label_smoothing_scale(folder: Path) -> bool:
    rows = [{"input_ids": _ids(row, 6), "labels": _ids(row, 6)} for row in range(8)]
    return _scales_with_micro_batches(folder, _causal, rows, label_smoothing_factor=0.1)


def accumulation_scale(folder: Path) -> bool:
    import torch

    class Old(torch.nn.Module):
        """A model whose forward takes no loss arguments."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = _causal()

        def forward(self, input_ids: Any, labels: Any) -> Any:
            return {"loss": self.inner(input_ids=input_ids, labels=labels).loss}

    rows = [{"input_ids": _ids(row, 6), "labels": _ids(row, 6)} for row in range(8)]
    return _scales_with_micro_batches(folder, Old, rows)


def nan_hidden(folder: Path) -> bool:
    import math

    import torch

    class Bad(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = _causal(), 0

        def forward(self, input_ids: Any, labels: Any) -> Any:
            self.calls += 1
            factor = math.nan if self.calls == 3 else 1.0
            return {"loss": factor * self.inner(input_ids=input_ids, labels=labels).loss}

    rows = [{"input_ids": _ids(row, 6), "labels": _ids(row, 6)} for row in range(8)]
    model = Bad()
    trained = _trained(folder, model, rows, max_steps=4, logging_steps=4)
    broken = any(bool(torch.isnan(value).any()) for value in model.parameters())
    return broken and math.isfinite(_logged(trained, "loss")[0])


def resume_random_data(folder: Path) -> bool:
    import torch

    class Random(torch.utils.data.Dataset):
        """Rows that are drawn anew at each look, as an augmentation does."""

        def __init__(self) -> None:
            self.seen: list[tuple[int, ...]] = []

        def __len__(self) -> int:
            return 16

        def __getitem__(self, row: int) -> dict[str, Any]:
            ids = torch.randint(3, VOCABULARY, (6,))
            self.seen.append((row, *ids.tolist()))
            return {"input_ids": ids, "labels": ids.clone()}

    steps = {"max_steps": 6, "per_device_train_batch_size": 2}
    whole, resumed = Random(), Random()
    _trained(folder, _causal(), whole, save_strategy="steps", save_steps=3, **steps)
    from transformers import Trainer

    class Resumed(Trainer):
        def train(self, *_: Any, **__: Any) -> Any:
            return super().train(resume_from_checkpoint=str(folder / "checkpoint-3"))

    torch.manual_seed(1)
    _resumed(folder / "again", Resumed, resumed, steps)
    return whole.seen[6:12] != resumed.seen[:6]


def _resumed(folder: Path, kind: type, rows: Any, steps: dict[str, int]) -> None:
    from transformers import TrainingArguments

    plain = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "seed": 0}
    made = TrainingArguments(str(folder), save_strategy="no", **plain, **steps)
    kind(_causal(), made, train_dataset=rows).train()


def generation_defaults(folder: Path) -> bool:
    from transformers import GenerationConfig

    model = _causal()
    model.generation_config.temperature = 0.1
    model.generation_config.do_sample = True
    asked = GenerationConfig(temperature=1.0, do_sample=True, max_new_tokens=2)
    prepared, _ = model._prepare_generation_config(asked)
    return bool(prepared.temperature == 0.1)


def _adapted(**changed: Any) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model

    tied = changed.pop("tied", False)
    model = _causal(tie_word_embeddings=tied, attention_bias=True)
    torch.manual_seed(1)
    defaults = {"target_modules": ["q_proj"], "init_lora_weights": False, "r": 4}
    return get_peft_model(model, LoraConfig(**{**defaults, **changed})).eval()


def _says(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(torch.arange(3, 11)[None]).logits


def _merging_changes(model: Any) -> bool:
    before = _says(model)
    model.merge_adapter()
    return bool((before - _says(model)).abs().max() > 1e-3 * before.abs().max())


def tied_head_merge(folder: Path) -> bool:
    return _merging_changes(_adapted(target_modules=["lm_head"], tied=True))


def lora_bias_merge(folder: Path) -> bool:
    return _merging_changes(_adapted(lora_bias=True, lora_alpha=16))


def rslora_set_scale(folder: Path) -> bool:
    model = _adapted(use_rslora=True, lora_alpha=16)
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    before = layer.scaling["default"]
    layer.set_scale("default", 1.0)
    return bool(abs(layer.scaling["default"] - before) > 1e-6)


def dare_density(folder: Path) -> bool:
    import torch
    from peft.utils.merge_utils import random_pruning

    torch.manual_seed(0)
    kept = random_pruning(torch.ones(100), density=0.5, rescale=True)
    return bool(kept.max() == 1.0)


def negative_weights(folder: Path) -> bool:
    model = _adapted()
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    with contextlib.suppress(ValueError):  # older versions refuse negative weights
        model.add_weighted_adapter(["default"], [-1.0], "minus", combination_type="linear")
        plus, minus = layer.get_delta_weight("default"), layer.get_delta_weight("minus")
        return bool((plus + minus).abs().max() > 1e-3 * plus.abs().max())
    return False


def _rates(scheduler: Any) -> list[float]:
    found = []
    for _ in range(4):
        found.append(round(scheduler.get_last_lr()[0], 6))
        scheduler.optimizer.step()
        scheduler.step()
    return found


def _optimizer() -> Any:
    import torch

    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def sequential_nested(folder: Path) -> bool:
    from torch.optim.lr_scheduler import ConstantLR, SequentialLR

    def inner(optimizer: Any) -> Any:
        parts = [ConstantLR(optimizer, 0.5, 2), ConstantLR(optimizer, 0.2, 10)]
        return SequentialLR(optimizer, parts, milestones=[2])

    first, second = _optimizer(), _optimizer()
    return _rates(inner(first)) != _rates(SequentialLR(second, [inner(second)], milestones=[]))


def sequential_zero(folder: Path) -> bool:
    from torch.optim.lr_scheduler import ConstantLR, SequentialLR

    optimizer = _optimizer()
    parts = [ConstantLR(optimizer, 0.5, 2), ConstantLR(optimizer, 1.0, 2)]
    return _rates(SequentialLR(optimizer, parts, milestones=[0]))[0] != 0.1


def launch_cpu_single(folder: Path) -> bool:
    script = folder / "says.py"
    script.write_text("import os\nprint('WORLD', os.environ.get('WORLD_SIZE', '1'))\n")
    words = ["accelerate.commands.launch", "--cpu", "--num_processes", "2", str(script)]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    assert "WORLD" in done.stdout, done.stderr
    return done.stdout.count("WORLD 1") == 1


def resume_order(folder: Path) -> bool:
    import torch
    from accelerate import Accelerator, skip_first_batches
    from accelerate.utils import DataLoaderConfiguration

    def prepared() -> Any:
        torch.manual_seed(0)
        config = DataLoaderConfiguration(use_seedable_sampler=True)
        loader = torch.utils.data.DataLoader(range(16), shuffle=True, batch_size=1)
        return Accelerator(cpu=True, dataloader_config=config).prepare(loader)

    whole, resumed = prepared(), prepared()
    epochs = [[int(row) for row in whole] for _ in range(2)]
    resumed.set_epoch(1)
    return [int(row) for row in skip_first_batches(resumed, 4)] != epochs[1][4:]


def shuffle_generator(folder: Path) -> bool:
    import numpy
    from datasets import Dataset, load_from_disk

    Dataset.from_dict({"x": list(range(100))}).save_to_disk(str(folder / "data"))

    def epochs() -> list[int]:
        generator = numpy.random.default_rng(0)
        rows = load_from_disk(str(folder / "data"))
        return [rows.shuffle(generator=generator)[0]["x"] for _ in range(4)]

    return epochs() != epochs()


def _streams(*names: str) -> list[Any]:
    from datasets import Dataset

    return [Dataset.from_dict({name: [1, 2]}).to_iterable_dataset() for name in names]


def columns_dropped(folder: Path) -> bool:
    from datasets import concatenate_datasets

    joined = concatenate_datasets(_streams("x", "y"), axis=1).with_format("arrow")
    with contextlib.suppress(Exception):
        return any(table.column_names != ["x", "y"] for table in joined)
    return True


def skip_blocks(folder: Path) -> bool:
    from datasets import Dataset

    rows = Dataset.from_dict({"x": list(range(12))}).to_iterable_dataset(num_shards=4)
    left = [row for table in rows.with_format("arrow").skip(3) for row in table["x"].to_pylist()]
    return left != list(range(3, 12))


def packing_split_rows(folder: Path) -> bool:
    from datasets import Dataset
    from trl import pack_dataset

    rows = Dataset.from_dict({"input_ids": [list(range(7)), [8, 9]]})
    with contextlib.suppress(ValueError):  # older versions have no such strategy
        packed = pack_dataset(rows, seq_length=4, strategy="bfd")["input_ids"]
        return sum(map(len, packed)) == 9
    return False


REPRODUCTIONS: dict[str, Shows] = {
    "accelerate-launch-cpu-single": launch_cpu_single,
    "accelerate-resume-order": resume_order,
    "datasets-columns-dropped": columns_dropped,
    "datasets-shuffle-generator": shuffle_generator,
    "datasets-skip-blocks": skip_blocks,
    "peft-dare-density": dare_density,
    "peft-lora-bias-merge": lora_bias_merge,
    "peft-negative-weights": negative_weights,
    "peft-rslora-set-scale": rslora_set_scale,
    "peft-tied-head-merge": tied_head_merge,
    "torch-sequential-nested": sequential_nested,
    "torch-sequential-zero": sequential_zero,
    "transformers-accumulation-scale": accumulation_scale,
    "transformers-classifier-accumulation": classifier_accumulation,
    "transformers-generation-defaults": generation_defaults,
    "transformers-label-smoothing-scale": label_smoothing_scale,
    "transformers-nan-hidden": nan_hidden,
    "transformers-resume-random-data": resume_random_data,
    "trl-packing-split-rows": packing_split_rows,
}
"""By the advisory's id."""
