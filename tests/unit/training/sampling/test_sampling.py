"""Sampler and trainer agree in a healthy loop; each planted fault breaks the right relation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import canary
from canary.errors import UsageError
from canary.relations.relation import Outcome
from canary.training.sampling.samples import told
from tests.unit.training.sampling.grpo import (
    COMPLETION,
    GROUP,
    NAMES,
    PROMPT,
    Grpo,
    copied,
    generate,
    sample,
    tiny,
    watched,
)

Sampler = Callable[..., torch.Tensor]


def broken(found: dict[str, Outcome]) -> set[str]:
    return {name for name, one in found.items() if one["status"] == "broken"}


def with_engine(**changed: Any) -> Grpo:
    policy = tiny()
    return Grpo(policy, copied(policy, changed.pop("dtype", None)), **changed)


@pytest.mark.parametrize("sampler", [sample, generate])
@pytest.mark.parametrize(
    ("made", "weights"),
    [
        (lambda sampler: Grpo(tiny(), sampler=sampler), "not applicable"),
        (lambda sampler: with_engine(sampler=sampler), "holds"),
        (lambda sampler: Grpo(tiny().to(torch.bfloat16), sampler=sampler), "not applicable"),
    ],
    ids=["policy", "engine", "bfloat16"],
)
def test_nothing_is_broken_in_a_healthy_loop(
    sampler: Sampler, made: Callable[[Sampler], Grpo], weights: str
) -> None:
    found = made(sampler).run()
    assert broken(found) == set(), found
    assert found["sampler_logprobs"]["status"] == "holds"
    assert "of 3 updates" in found["sampler_logprobs"]["message"]
    assert found["sampler_weights"]["status"] == weights


def never(policy: Any, engine: Any, update: int) -> None:
    """Leave the engine as it is."""


def late(policy: Any, engine: Any, update: int) -> None:
    """Give the engine the weights of the update before."""
    engine.load_state_dict(getattr(engine, "next", engine.state_dict()))
    engine.next = {name: value.clone() for name, value in policy.state_dict().items()}


def in_part(policy: Any, engine: Any, update: int) -> None:
    """Leave out the head."""
    known = policy.state_dict()
    engine.load_state_dict({name: known[name] for name in known if "lm_head" not in name}, False)


def penalised(engine: Any, prompts: torch.Tensor, temperature: float) -> torch.Tensor:
    """Sample with a repetition penalty, which the trainer does not know."""
    return engine.generate(
        prompts, do_sample=True, top_k=0, repetition_penalty=1.8, max_new_tokens=COMPLETION
    )


def templated(engine: Any, prompts: torch.Tensor, temperature: float) -> torch.Tensor:
    """Sample after a prompt of another template, which the trainer does not see."""
    more = torch.full((len(prompts), 2), 9)
    return sample(engine, torch.cat([more, prompts], dim=1), temperature)[:, 2:]


def in_training_mode() -> Grpo:
    def sampler(engine: Any, prompts: torch.Tensor, temperature: float) -> torch.Tensor:
        return sample(engine.train(), prompts, temperature)

    return Grpo(tiny(attention_dropout=0.3), sampler=sampler)


BOTH = {"sampler_logprobs", "sampler_weights"}


@pytest.mark.parametrize(
    ("made", "expected", "words"),
    [
        (lambda: with_engine(sync=never), BOTH, "grows from"),
        (lambda: with_engine(sync=late), BOTH, "the engine is 1 update behind"),
        (lambda: with_engine(sync=in_part), BOTH, "1 of 21 tensors differ"),
        (lambda: with_engine(dtype=torch.bfloat16), {"sampler_logprobs"}, "holds bfloat16"),
        (
            lambda: Grpo(tiny(), sampled_at=0.7),
            {"sampler_logprobs"},
            "the sampler's temperature is 0.7, and the trainer's 1",
        ),
        (lambda: Grpo(tiny(), sampler=templated), {"sampler_logprobs"}, "the trainer's 4"),
        (lambda: Grpo(tiny(), sampler=penalised), {"sampler_logprobs"}, "a repetition penalty"),
        (in_training_mode, {"sampler_logprobs"}, "in training mode"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_planted_fault_breaks_its_relation(
    made: Callable[[], Grpo], expected: set[str], words: str
) -> None:
    found = made().run()
    assert broken(found) == expected, found
    assert words in " ".join(one["message"] for one in found.values())


def reporting(log_probs: float = 0.0) -> Callable[[torch.Tensor], None]:
    """Report sequences as an engine would whose log-probabilities are off by a constant."""

    def report(ids: torch.Tensor) -> None:
        with torch.no_grad():
            scores = report.policy(input_ids=ids).logits.log_softmax(-1)  # type: ignore[attr-defined]
        known = scores[:, :-1].gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
        canary.sampled(ids, known[:, PROMPT - 1 :] + log_probs)

    return report


@pytest.mark.parametrize("off", [0.0, 0.01])
def test_what_a_loop_reports_is_compared(off: float) -> None:
    policy, report = tiny(), reporting(off)
    report.policy = policy  # type: ignore[attr-defined]

    def unseen(engine: Any, prompts: torch.Tensor, temperature: float) -> torch.Tensor:
        return torch.cat([prompts, torch.randint(3, 40, (GROUP, COMPLETION))], dim=1)

    found = Grpo(policy, sampler=unseen, report=report).run()["sampler_logprobs"]
    assert found["status"] == ("broken" if off else "holds"), found
    if off:
        sampler, trainer = found["values"]
        assert sampler - trainer == pytest.approx(off, abs=1e-4)


def hashes(policy: Any, dtype: torch.dtype = torch.float32) -> dict[str, str]:
    return {
        name: hashlib.sha256(
            value.to(dtype).contiguous().view(torch.uint8).numpy().tobytes()
        ).hexdigest()
        for name, value in policy.state_dict().items()
    }


@pytest.mark.parametrize(
    ("weights", "status", "words"),
    [
        (lambda policy: policy.state_dict(), "holds", "21 tensors"),
        (lambda policy: hashes(policy), "holds", "21 tensors are equal, before"),
        (
            lambda policy: {name: value.numpy() + 1 for name, value in policy.state_dict().items()},
            "broken",
            "21 of 21",
        ),
        (lambda policy: {"other": torch.ones(2)}, "undecided", "no tensor of the same name"),
    ],
    ids=["tensors", "hashes", "other", "foreign"],
)
def test_weights_that_a_loop_reports_are_compared(
    weights: Callable[[Any], Any], status: str, words: str
) -> None:
    policy = tiny()
    loop = Grpo(policy, report=lambda ids: canary.engine_weights(weights(policy)))
    found = loop.run()["sampler_weights"]
    assert found["status"] == status, found
    assert words in found["message"]


def test_the_training_is_left_as_it_was() -> None:
    """What is asked changes no parameter by a bit, also with dropout and a reward with a state."""

    def trained(wanted: tuple[str, ...]) -> torch.Tensor:
        policy, calls = tiny(attention_dropout=0.1), []

        @canary.reward_function
        def reward(completions: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return (completions % 5).float().mean(1) + torch.rand(len(completions)) + len(calls)

        loop = Grpo(policy, copied(policy), wanted=wanted, reward=reward)
        loop.run() if wanted else loop.trained()
        assert len(calls) == loop.updates
        return torch.cat([value.detach().flatten() for value in policy.parameters()])

    assert torch.equal(trained(()), trained(NAMES))


def test_a_training_that_samples_nothing_is_not_asked() -> None:
    def given(engine: Any, prompts: torch.Tensor, temperature: float) -> torch.Tensor:
        return torch.cat([prompts, torch.randint(3, 40, (GROUP, COMPLETION))], dim=1)

    found = Grpo(tiny(), sampler=given).run()
    assert {one["status"] for one in found.values()} == {"not applicable"}, found


def test_without_a_check_the_reports_do_nothing() -> None:
    canary.sampled(object(), None)
    canary.engine_weights([("a", object())])
    assert canary.reward_function(len)([1, 2]) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (([[1, 2, 3]], [[0.1], [0.2]]), "1 rows of ids, 2 of log-probabilities"),
        (([[1, 2, 3]], [[0.1]], 1), "3 ids, a prompt of 1 and 1 log-probabilities"),
        (([[1, 2, 3]], [[0.1]], [1, 2]), "2 prompt_lengths for 1 rows"),
        ((7, [[0.1]]), "one row of values per sequence"),
    ],
)
def test_reports_that_do_not_fit_are_refused(given: tuple[Any, ...], words: str) -> None:
    with watched(), pytest.raises(UsageError, match=words):
        canary.sampled(*given)


def test_padding_is_no_part_of_a_report() -> None:
    ids = torch.tensor([[0, 5, 6, 7, 8], [4, 5, 6, 2, 0]])
    mask = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    for log_probs in (
        torch.tensor([[9, 9, 9, 0.1, 0.2], [9, 9, 0.3, 0.4, 9]]),
        [[0.1, 0.2], [0.3, 0.4]],
    ):
        one, other = told(ids, log_probs, 2, mask, None)
        assert (one.prompt, one.tokens) == ((5, 6), [7, 8])
        assert (other.prompt, other.tokens) == ((4, 5), [6, 2])
        assert other.log_probs == pytest.approx([0.3, 0.4])


@pytest.mark.parametrize("weights", [None, {1: torch.ones(1)}])
def test_weights_that_cannot_be_read_are_told_in_one_line(weights: Any) -> None:
    with watched(), pytest.raises(UsageError, match=r"canary\.engine_weights"):
        canary.engine_weights(weights)
