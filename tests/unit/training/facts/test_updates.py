"""What the watcher of updates sees in tiny loops, each fault beside its healthy neighbour."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset
from transformers import get_cosine_schedule_with_warmup

from canary.record.facts import Facts, FollowedOptimizer, UpdateFacts
from canary.training.facts.updates import UpdateWatcher, part_of

UPDATES = 4
Step = Callable[[nn.Module, Optimizer, torch.Tensor], None]


def small(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 1)).to(dtype)


def watched(
    step: Step, model: nn.Module, optimizer: Optimizer, *more: Optimizer, updates: int = UPDATES
) -> UpdateFacts:
    """Run a loop under the watcher and return what it told."""
    watcher = UpdateWatcher(SimpleNamespace(model=model, optimizers=(optimizer, *more)))
    watcher.begin()
    torch.manual_seed(1)
    dtype = next(model.parameters()).dtype
    try:
        for _ in range(updates):
            step(model, optimizer, torch.randn(4, 8, dtype=dtype))
    finally:
        watcher.end()
    facts: Facts = {}
    watcher.tell(facts, {})
    return facts["updates"]


def first(seen: UpdateFacts) -> FollowedOptimizer:
    return seen["optimizers"][0]


def backward(model: nn.Module, rows: torch.Tensor) -> None:
    model(rows).square().mean().backward()


def plain(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
    optimizer.zero_grad()
    backward(model, rows)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()


def adam(model: nn.Module, lr: float = 1e-2) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr)


def trained_with(step: Step, **options: Any) -> FollowedOptimizer:
    model = small()
    return first(watched(step, model, adam(model), **options))


def test_a_healthy_loop() -> None:
    model = small()
    seen = watched(plain, model, adam(model))
    one = first(seen)
    assert (one["class"], one["updates"], one["backwards"]) == ("AdamW", 4, [1, 1, 1, 1])
    assert (one["left"], one["emptied"]) == (0, 3)
    assert (one["clips_before"], one["clips_after"], one["written_before"]) == (4, 0, [])
    assert seen["holding"]["trainable_held"] == seen["holding"]["trainable"] == 6
    assert seen["holding"]["missing"] == 0
    assert seen["modes"] == [True] * 4
    assert "rounding" not in one


def test_the_training_is_the_same_with_and_without_the_watcher() -> None:
    def weights(run: Callable[..., Any]) -> tuple[list[torch.Tensor], torch.Tensor]:
        model = small()
        run(plain, model, adam(model))
        return [value.detach() for value in model.parameters()], torch.get_rng_state()

    def alone(step: Step, model: nn.Module, optimizer: Optimizer) -> None:
        torch.manual_seed(1)
        for _ in range(UPDATES):
            step(model, optimizer, torch.randn(4, 8))

    with_watcher, state = weights(watched)
    without, other = weights(alone)
    assert all(torch.equal(a, b) for a, b in zip(with_watcher, without, strict=True))
    assert torch.equal(state, other)


def test_nothing_stays_behind() -> None:
    def hooked() -> list[Any]:
        clips = torch.nn.utils.clip_grad._clip_grads_with_norm_
        return [torch.autograd.backward, clips, torch.amp.GradScaler.scale]

    before = hooked()
    model = small()
    optimizer = adam(model)
    watched(plain, model, optimizer)
    assert hooked() == before
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_gradients_that_are_never_emptied() -> None:
    def forgets(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        backward(model, rows)
        optimizer.step()

    one = trained_with(forgets)
    assert (one["left"], one["emptied"]) == (3, 0)


def test_gradients_that_decay_on_purpose_are_not_those_of_the_update_before() -> None:
    def decays(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        backward(model, rows)
        optimizer.step()
        for value in model.parameters():
            assert value.grad is not None
            value.grad *= 0.5

    assert trained_with(decays)["left"] == 0


def test_gradients_that_the_loop_assigns_to_copies_are_not_added() -> None:
    """Master weights in float32: their gradients are those of the model in half precision."""
    masters = [value.detach().clone().requires_grad_() for value in small().parameters()]

    def assigns(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        model.zero_grad()
        backward(model, rows)
        for master, value in zip(masters, model.parameters(), strict=True):
            assert value.grad is not None
            master.grad = value.grad.float()
        optimizer.step()

    one = first(watched(assigns, small(torch.bfloat16), torch.optim.AdamW(masters)))
    assert (one["left"], one["emptied"]) == (0, 0)


def test_an_adversary_is_emptied_before_its_own_backward() -> None:
    """The backward of the generator begins with the critic's old gradients, as in many GANs."""
    critic, generator = small(), nn.Linear(8, 8)
    of_generator = adam(generator)

    def both(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        of_generator.zero_grad()
        model(generator(rows)).mean().backward()
        of_generator.step()
        optimizer.zero_grad()
        backward(model, rows)
        optimizer.step()

    seen = watched(both, critic, adam(critic), of_generator)
    assert [(one["left"], one["emptied"]) for one in seen["optimizers"]] == [(0, 3), (0, 3)]


def test_accumulation_is_one_update_of_several_backwards() -> None:
    def accumulates(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        backward(model, rows)
        backward(model, rows)
        optimizer.step()
        optimizer.zero_grad()

    one = trained_with(accumulates)
    assert (one["left"], one["emptied"], one["backwards"]) == (0, 3, [2] * 4)


@pytest.mark.parametrize(("limit", "between"), [(0.01, 8), (1e9, 0)])
def test_clips_between_the_micro_batches_of_an_update(limit: float, between: int) -> None:
    def clips(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        for place in range(3):
            backward(model, rows.roll(place, 1))
            torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
        optimizer.zero_grad()

    one = trained_with(clips)
    assert (one["clips_before"], one["clips_between"]) == (4, between)


def test_a_clip_before_a_backward_of_other_gradients_is_not_between() -> None:
    critic, actor = small(), small()
    of_critic = adam(critic)

    def both(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        for one in (model, critic):
            backward(one, rows)
            torch.nn.utils.clip_grad_norm_(one.parameters(), 0.01)
        for each in (optimizer, of_critic):
            each.step()
            each.zero_grad()

    seen = watched(both, actor, adam(actor), of_critic)
    assert [one["clips_between"] for one in seen["optimizers"]] == [0, 0]


def test_an_optimizer_that_computes_its_gradients_is_marked() -> None:
    def closes(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        def closure() -> float:
            optimizer.zero_grad()
            loss = model(rows).square().mean()
            loss.backward()
            return loss.item()

        optimizer.step(closure)

    model = small()
    assert first(watched(closes, model, torch.optim.LBFGS(model.parameters())))["closure"]


@pytest.mark.parametrize(("limit", "acted"), [(0.01, 4), (1e9, 0)])
def test_a_clip_after_the_step(limit: float, acted: int) -> None:
    def late(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        optimizer.zero_grad()
        backward(model, rows)
        optimizer.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)

    one = trained_with(late)
    assert (one["clips_before"], one["clips_after"], one["clips_after_acted"]) == (0, 4, acted)


def test_a_norm_that_is_only_measured_after_the_step_is_no_clip() -> None:
    def measures(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        optimizer.zero_grad()
        backward(model, rows)
        optimizer.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))

    assert trained_with(measures)["clips_after"] == 0


def test_updates_that_bfloat16_rounds_away() -> None:
    model = small(torch.bfloat16)
    found = first(watched(plain, model, adam(model, lr=1e-5)))["rounding"]
    assert "1.weight" in found["still_names"]  # a norm at 1
    assert "1.bias" not in found["still_names"]  # it starts at 0
    assert found["lost"] > 0.5 * found["asked"] > 0


def test_updates_that_bfloat16_holds() -> None:
    model = small(torch.bfloat16)
    found = first(watched(plain, model, adam(model, lr=2e-2)))["rounding"]
    assert (found["still"], found["lost"] < 0.1 * found["asked"]) == (0, True)


def test_a_tensor_that_thaws_after_the_optimizer_was_made() -> None:
    model = small()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW([v for v in model.parameters() if v.requires_grad])

    def thaws(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        plain(model, optimizer, rows)
        model[0].requires_grad_(True)  # type: ignore[index]

    holding = watched(thaws, model, optimizer)["holding"]
    assert holding["thawed_names"] == ["0.weight", "0.bias"]

    def adds(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        plain(model, optimizer, rows)
        if len(optimizer.param_groups) == 1:
            optimizer.add_param_group({"params": [*model[0].parameters()]})  # type: ignore[index]
            model[0].requires_grad_(True)  # type: ignore[index]

    model = small()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW([v for v in model.parameters() if v.requires_grad])
    holding = watched(adds, model, optimizer)["holding"]
    assert (holding["thawed"], holding["missing"]) == (0, 0)


def test_tensors_that_the_optimizer_was_never_given() -> None:
    model = small()
    holding = watched(plain, model, torch.optim.AdamW(model[2].parameters()))["holding"]
    assert (holding["missing"], holding["thawed"], holding["trainable_held"]) == (4, 0, 2)
    assert holding["left_out"]
    model = small()
    matrices = torch.optim.AdamW([value for value in model.parameters() if value.dim() > 1])
    assert not watched(plain, model, matrices)["holding"]["left_out"]
    model = small()
    optimizer = adam(model)
    model[2] = nn.Linear(16, 1)  # The optimizer holds the old one.
    assert not watched(plain, model, optimizer)["holding"]["left_out"]


class Several(nn.Module):
    """One head is a module, the other one is in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.heads = small(), [nn.Linear(1, 1)]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.heads[0](self.body(rows))
        return found


def test_layers_in_a_plain_list_are_missing_and_not_left_out() -> None:
    model = Several()
    seen = watched(plain, model, adam(model))["holding"]
    assert seen["missing_names"] == ["heads.0.weight", "heads.0.bias"]
    assert not seen["left_out"]


@pytest.mark.parametrize("resting", [0, 2])
def test_a_group_whose_learning_rate_is_0_rests_beside_others(resting: int) -> None:
    model = small(torch.bfloat16)
    rates = {0: 2e-2, 2: 2e-2, resting: 0.0}
    groups = [{"params": [*model[at].parameters()], "lr": rate} for at, rate in rates.items()]
    seen = watched(plain, model, torch.optim.AdamW(groups))
    assert seen["holding"]["resting_names"] == [f"{resting}.weight", f"{resting}.bias"]
    assert (first(seen)["rates"], first(seen)["rounding"]["tensors"]) == ([2e-2] * 4, 2)


def test_a_group_that_a_schedule_thaws_rested_in_the_first_update() -> None:
    model = small()
    groups = [{"params": [*model[at].parameters()], "lr": 1e-2} for at in (0, 2)]
    optimizer: Optimizer = torch.optim.SGD(groups)
    later: list[Callable[[int], float]] = [lambda step: float(step > 1), lambda _: 1.0]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, later)

    def thawing(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        plain(model, optimizer, rows)
        schedule.step()

    assert watched(thawing, model, optimizer)["holding"]["resting_names"] == ["0.weight", "0.bias"]


def test_the_part_of_a_model_is_a_layer_or_a_module() -> None:
    names = ("model.layers.3.q.lora_A.weight", "layer1.0.conv1.weight", "0.weight", "head.out.bias")
    assert [*map(part_of, names)] == ["model.layers.3", "layer1.0", "0", "head.out"]
    assert part_of("scale") == ""


def test_weights_that_are_copied_in_between_two_updates() -> None:
    done = []

    def averages(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        plain(model, optimizer, rows)
        done.append(1)
        if len(done) == 2:
            with torch.no_grad():
                for value in model.parameters():
                    value.mul_(0.5)

    one = trained_with(averages)
    assert (one["written_before"], one["written"]) == ([3], "0.weight")


def test_weights_that_are_taken_out_again_are_not_written() -> None:
    def swaps(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        plain(model, optimizer, rows)
        kept = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad():
            for value in model.parameters():
                value.zero_()
        model.load_state_dict(kept)

    assert trained_with(swaps)["written_before"] == []


def test_a_schedule_and_its_steps_per_update() -> None:
    model = small()
    optimizer = adam(model)
    schedule = get_cosine_schedule_with_warmup(optimizer, 0, 48)

    def twice(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        plain(model, optimizer, rows)
        schedule.step()
        schedule.step()

    seen = watched(twice, model, optimizer)["schedules"]
    assert [(one["length"], one["begun_at"], one["steps"]) for one in seen] == [(48, 0, [2] * 4)]


def test_the_length_of_the_loader() -> None:
    model = small()
    batches = iter(DataLoader(TensorDataset(torch.randn(20, 8)), batch_size=4))

    def reads(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        plain(model, optimizer, next(batches)[0])

    assert watched(reads, model, adam(model))["loader_length"] == 5


def test_a_model_that_is_left_in_evaluation_mode() -> None:
    model = small().append(nn.Dropout(0.1))

    def evaluates(model: nn.Module, optimizer: Optimizer, rows: torch.Tensor) -> None:
        plain(model, optimizer, rows)
        model.eval()

    seen = watched(evaluates, model, adam(model))
    assert (seen["modes"], seen["noisy_modules"]) == ([True, False, False, False], 1)
    seen = watched(evaluates, model.eval(), adam(model))
    assert (seen["modes"], seen["noisy_modules"]) == ([False] * 4, 1), "of the whole model"


def test_sparse_gradients_end_the_watcher_alone() -> None:
    model = nn.Embedding(9, 8, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    watcher = UpdateWatcher(SimpleNamespace(model=model, optimizers=(optimizer,)))
    watcher.begin()
    before = model.weight.detach().clone()
    for _ in range(2):
        model(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
    watcher.end()
    assert not torch.equal(before, model.weight)
    with pytest.raises(RuntimeError, match="sparse"):
        watcher.tell({}, {})
