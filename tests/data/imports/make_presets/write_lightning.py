"""Lightning: a `Trainer` of sixteen steps with its CSV logger and its TensorBoard logger."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

import lightning.pytorch as pl
import torch
from common import Output, fresh, hide_host, single, write_expected
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ThroughputMonitor
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader, TensorDataset


class Line(pl.LightningModule):
    """A linear model; its names are those that a user gives, except the rates."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def loss(self, batch: Any) -> torch.Tensor:
        inputs, wanted = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), wanted)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 8),
                "interval": "step",
            },
        }


class Kept(Callback):
    """The loss of every step, from the loop itself."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.steps: list[int] = []
        self.checked: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *rest: Any) -> None:
        self.losses.append(float(outputs["loss"]))
        self.steps.append(trainer.global_step - 1)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if not trainer.sanity_checking:
            self.checked.append(float(trainer.callback_metrics["val_loss"]))


def main() -> None:
    folder = fresh("lightning")
    os.chdir(folder)
    pl.seed_everything(0)
    inputs = torch.randn(64, 4)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    kept = Kept()
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=[CSVLogger("csv"), TensorBoardLogger("tensorboard")],
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[
            kept,
            LearningRateMonitor("step"),
            ThroughputMonitor(batch_size_fn=lambda batch: batch[0].size(0), window_size=4),
        ],
    )
    trainer.fit(Line(), DataLoader(data, batch_size=8), DataLoader(data, batch_size=32))
    hide_host(folder)
    own = f"the framework's own writer lightning {version('lightning')}"
    rates = [0.05] * 8 + [0.05 * 0.1] * 8
    outputs = []
    for path, form, written in (
        ("csv/lightning_logs/version_0/metrics.csv", "csv", float),
        ("tensorboard/lightning_logs/version_0", "tensorboard", single),
    ):
        output = Output(path, form, own, kept.steps)
        output.note = (
            "steps from 0; train_loss_step and val_loss are the user's names, "
            "so no preset knows them; "
            "validate/* count validation batches in the step, so rows go back"
        )
        output.has("learning_rate", "lr-AdamW", rates, written=written)
        output.has("train_loss_step", "train_loss_step", kept.losses, written=written)
        output.has("val_loss", "val_loss", kept.checked, written=written)
        outputs.append(output)
    write_expected("lightning", outputs)


if __name__ == "__main__":
    main()
