"""What differs in batches is told by what they hold: rows without names, EOS, order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from canary.compare.diagnosis.suspects import Suspect
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from canary.training.collectors.batches import describe_batch
from canary.training.collectors.named import Named
from canary.training.exact import fingerprints
from canary.training.exact.fingerprints import special_ids, tokenizer_of
from tests.unit.diagnosing import (
    LOSSES,
    OTHER,
    OTHER_HASHES,
    OTHER_LOSS,
    OTHER_ROWS,
    Change,
    changed,
    every_micro,
    exact,
    later,
    seen,
    sides,
)


def pair_of(seed: int, rows: int = 4) -> dict[str, torch.Tensor]:
    """A batch `(input, target)` of plain language modelling, as it reaches the look."""
    torch.manual_seed(seed)
    words = torch.randint(0, 60, (rows, 9))
    return {"0": words[:, :-1], "1": words[:, 1:]}


def against(before: list[Any], after: list[Any], *losses: Change) -> Suspect:
    """Records whose batches are these, a micro-batch a step."""
    baseline, current = sides()
    current = changed(current, *(losses or OTHER_LOSS))
    for side, batches in ((baseline, before), (current, after)):
        side.exact["batches"] = [[describe_batch(batch, None)] for batch in batches]
    top = compare_to_baseline(current, baseline, gates=()).diagnosis.top_suspect
    assert top is not None
    return top


def test_tuples_of_another_seed_are_other_rows_and_not_other_labels() -> None:
    top = against([pair_of(s) for s in range(6)], [pair_of(s) for s in range(50, 56)])
    assert top.category == "data"
    assert "different sequences" in top.description
    assert "labels" not in top.description


def padded(seed: int) -> dict[str, torch.Tensor]:
    """Four rows, of which two are shorter."""
    torch.manual_seed(seed)
    ids = torch.randint(5, 60, (4, 8 + seed % 6))
    present = torch.ones_like(ids)
    present[2:, -2:] = 0
    labels = ids.where(present.bool(), -100)
    return {"input_ids": ids, "attention_mask": present, "labels": labels}


@pytest.mark.parametrize(
    ("first", "last", "words"), [(1, 1, "covers the padding too"), (0, 0, "covers fewer positions")]
)
def test_a_mask_of_the_same_ids_is_no_other_length(first: int, last: int, words: str) -> None:
    batches, now = [*map(padded, range(6))], [*map(padded, range(6))]
    for batch in now:
        batch["attention_mask"][:, 0], batch["attention_mask"][:, -2:] = first, last
    top = against(batches, now)
    assert (top.category, words in top.description) == ("data", True)
    assert "sequences" not in top.description


def test_batches_that_part_after_equal_steps_are_said_to_with_the_step() -> None:
    batches = [*map(padded, range(6))]
    for other, words in (
        ([*batches[:3], *batches[4:], batches[3]], "sequences come in another order from step 4"),
        ([*batches[:3], *map(padded, range(16, 19))], "different sequences, from step 4 on"),
    ):
        said = against(batches, other, *seen("trajectory", losses=later(LOSSES, 4))).description
        assert words in said
        assert "Other code may have drawn random numbers before" in said


def accumulated(times: int) -> RunRecord:
    """A record of five steps whose loop accumulates so many micro-batches of four rows."""
    made = changed(sides()[times > 1], *(OTHER_LOSS if times > 1 else ()))
    made.exact["batches"] = [
        [describe_batch(pair_of(times * step + place), None) for place in range(times)]
        for step in range(5)
    ]
    made.config["gradient_accumulation_steps"] = times
    return made


def test_steps_of_more_rows_are_said_to_be_with_their_setting() -> None:
    one, four = accumulated(1), accumulated(4)
    setting = "gradient_accumulation_steps"
    for before, now, words in (
        (one, four, f"Each step has 4 times as many rows: 4 -> 16 ({setting} 1 -> 4)."),
        (four, one, f"Each step has fewer rows: 16 -> 4 ({setting} 4 -> 1)."),
    ):
        top = compare_to_baseline(now, before, gates=()).diagnosis.top_suspect
        assert top is not None
        assert (top.category, top.description) == ("data", words)


def test_the_first_line_has_the_count_of_data_or_batches_that_differ() -> None:
    before, after = sides()
    shorter = changed(after, *every_micro("label_tokens", 5), *OTHER_HASHES, *OTHER_LOSS)
    was, now = (
        sum(micro["label_tokens"] for step in side.exact["batches"] for micro in step)
        for side in (before, shorter)
    )
    found = compare_to_baseline(shorter, before, gates=())
    count = f"label tokens {was:,} -> {now:,}"
    assert found.first_line == f"Changed: batches differ from step 1 on: {count}."
    shorter.exact["data"]["dataset_sha256"] = OTHER
    found = compare_to_baseline(shorter, before, gates=())
    assert found.first_line == f"Changed: the dataset differs: {count}."
    before.exact["data"]["rows"], shorter.exact["data"]["rows"] = 2600, 40
    found = compare_to_baseline(shorter, before, gates=())
    assert found.first_line == "Changed: the dataset differs: rows 2,600 -> 40."


def test_what_the_loss_gets_beside_the_batch_is_advised_where_it_was_not_seen() -> None:
    for unseen, advised in ((["labels"], True), ([], False)):
        before, after = (changed(side, *every_micro("unseen", unseen)) for side in sides())
        found = compare_to_baseline(changed(after, *OTHER_LOSS), before, gates=())
        top = found.diagnosis.top_suspect
        assert top is not None
        assert (top.category, "rewards and advantages" in str(top.suggested_actions)) == (
            "objective",
            advised,
        )


def test_targets_alone_that_differ_are_labels_of_the_same_rows() -> None:
    batches = [pair_of(seed) for seed in range(6)]
    masked = [{"0": one["0"], "1": one["1"].where(one["1"] > 5, -100)} for one in batches]
    assert "labels differ for the same sequences" in against(batches, masked).description


@pytest.mark.parametrize(
    ("steps", "stage"), [(range(12), "batches"), (range(3, 12), "trajectory"), ((), None)]
)
def test_a_batch_that_the_loop_changes_before_the_model_is_the_datas(
    steps: Any, stage: str | None
) -> None:
    """A record of another version, without the hash, shows no difference."""
    before, after = (changed(side, *every_micro("fed_sha256", "a" * 64)) for side in sides())
    after = changed(after, *(OTHER_LOSS if stage == "batches" else ()))
    for step in steps:
        for micro in after.exact["batches"][step]:
            micro["fed_sha256"] = OTHER
    found = compare_to_baseline(after, before, gates=())
    first = found.first_difference
    assert (first and first.stage) == stage
    if first is not None:
        assert first.detail.startswith("the DataLoader yields equal batches, but other values")
    top = found.diagnosis.top_suspect
    if stage == "batches":
        assert top is not None
        assert (top.category, top.confidence > 0.9) == ("data", True)
        assert "changes the batch between the DataLoader and the model" in top.description
    unfed = changed(before, *every_micro("fed_sha256", None))
    assert compare_to_baseline(after, unfed, gates=()).check("batches").status == "pass"


def with_calls(side: int, *earlier: tuple[str, ...]) -> RunRecord:
    """A record without a loader, whose model was called with these before the calls of a step."""
    made = sides()[side]
    made.exact["batches"] = [[describe_batch(padded(seed), None)] for seed in range(6)]
    for (micro,), calls in zip(made.exact["batches"], earlier, strict=False):
        if calls:
            micro["earlier_calls"], micro["earlier_sha256"] = len(calls), repr(calls)
    return made


def test_one_more_call_of_the_model_is_no_other_batch() -> None:
    before, after = with_calls(0, ("old",), ()), with_calls(1, ("old",), ("old",))
    found = compare_to_baseline(after, before, gates=())
    assert found.check("batches").status == "pass"
    other = changed(after, *seen("trajectory", losses=later(LOSSES, 2)))
    found = compare_to_baseline(other, before, gates=())
    top = found.diagnosis.top_suspect
    assert found.first_difference is not None
    assert top is not None
    assert (found.first_difference.stage, top.category) == ("trajectory", "objective")
    assert "the loss of step 2 differs" in top.description


def test_other_values_in_an_earlier_call_are_not_other_tokens_masks_or_labels() -> None:
    before, after = with_calls(0, ("old",)), with_calls(1, ("new",))
    found = compare_to_baseline(changed(after, *OTHER_LOSS), before, gates=())
    assert found.check("batches").message.startswith("other values in the calls before the last")
    top = found.diagnosis.top_suspect
    assert top is not None
    assert "calls before the last" in top.description


def test_the_hashes_shown_are_those_of_the_first_micro_batches_that_differ() -> None:
    before, after = accumulated(4), accumulated(4).model_copy(update={"run_id": "other"})
    after.exact["batches"][1][2]["sha256"] = OTHER
    check = compare_to_baseline(after, before, gates=()).check("batches")
    assert check.current == OTHER[:12] != check.baseline


def test_rows_are_those_of_pictures_and_not_of_the_few_labels_beside_them() -> None:
    pictures = {"label": torch.tensor([1, 0]), "pixel_values": torch.arange(24).view(2, 3, 4)}
    assert set(describe_batch(pictures, None)["rows"]) == {"pixel_values"}
    assert describe_batch({"scale": torch.tensor(3)}, None)["rows"] == {}


def test_scores_that_are_new_in_a_batch_differ() -> None:
    ids = torch.arange(12).view(3, 4)
    before, after = (side.model_copy(deep=True) for side in sides())
    for side, scores in ((before, {}), (after, {"score": torch.rand(3)})):
        batch = Named({"input_ids": ids, **scores})
        batch.entered = True
        side.exact["batches"] = [[describe_batch(batch, None)]] * 12
    after = changed(after, *OTHER_LOSS)
    assert compare_to_baseline(after, before, gates=()).check("batches").status == "changed"


def without_eos(others: int = 0) -> list[Change]:
    """No EOS in any micro-batch, and so many other tokens less."""
    assert {m.get("eos_labels") for step in exact()["batches"] for m in step}, "the example has EOS"
    return [
        (("exact", "batches", step, place, key), value)
        for step, micro_batches in enumerate(exact()["batches"])
        for place, micro in enumerate(micro_batches)
        for key, value in (
            ("eos_labels", 0),
            ("eos_inputs", 0),
            ("input_tokens", micro["input_tokens"] - micro["eos_labels"] - others),
            ("label_tokens", micro["label_tokens"] - micro["eos_labels"] - others),
        )
    ]


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (0, "EOS is no longer appended: "),
        (1, "The sequences differ and have no EOS label: "),
    ],
)
def test_an_eos_that_is_gone_is_named_where_no_tokenizer_told_the_words(
    others: int, words: str
) -> None:
    """As with a script whose trainer has no tokenizer: the model's config knows EOS."""
    before, after = (
        changed(side, *every_micro("texts", {}), (("exact", "data"), {"rows": 200}))
        for side in sides()
    )
    after = changed(after, *OTHER_ROWS, *without_eos(others))
    found = compare_to_baseline(after, before, gates=())
    top = found.diagnosis.top_suspect
    assert top is not None
    assert top.category == "data", found.diagnosis.summary
    assert top.description.startswith(words)
    assert "-> 0" in top.description
    eos = found.check("labels_contain_eos")
    assert eos.status == "fail"
    assert eos.message.startswith("0 EOS among")


def test_labels_that_are_all_gone_come_before_the_nan_of_their_mean() -> None:
    before, after = (
        changed(side, *every_micro("learned_rows", 4), *every_micro("rows_without_labels", 0))
        for side in sides()
    )
    losses = [float("nan")] * len(LOSSES)
    after = changed(
        after,
        *OTHER_HASHES,
        *(change for name in ("label_tokens", "eos_labels") for change in every_micro(name, 0)),
        *every_micro("rows_without_labels", 4),
        *seen("first_loss", loss=losses[0]),
        *seen("trajectory", losses=losses),
        (("stability", "nan_steps"), len(losses)),
        (("stability", "nan_at"), (1,)),
    )
    found = compare_to_baseline(after, before, gates=())
    assert found.first_line.startswith("Regression: no label is left in any of "), found.first_line
    assert found.check("nan_steps").status == "fail"
    assert found.diagnosis.top_suspect is not None
    assert found.diagnosis.top_suspect.category == "data", found.diagnosis.summary
    assert "lost labels" in found.diagnosis.top_suspect.description


def test_a_tokenizer_that_only_the_collator_has_is_the_trainers() -> None:
    """`Trainer(data_collator=DataCollatorForSeq2Seq(tokenizer))`: else an EOS that is lost has no
    name."""
    own, collators = SimpleNamespace(name="own"), SimpleNamespace(name="collator's")
    collator = SimpleNamespace(tokenizer=collators)
    assert tokenizer_of(SimpleNamespace(data_collator=collator)) is collators
    assert tokenizer_of(SimpleNamespace(processing_class=own, data_collator=collator)) is own
    assert tokenizer_of(SimpleNamespace(data_collator=len)) is None


@pytest.mark.parametrize(("size", "eos", "known"), [(4, 2, True), (3, 2, False), (9, 1, False)])
def test_the_only_tokenizer_is_the_trainings_if_the_model_has_its_eos_and_size(
    size: int, eos: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tokenizer:
        eos_token_id, chat_template = 2, None
        special_tokens_map: ClassVar[dict[str, str]] = {}
        get_vocab = staticmethod(lambda: {"a": 0, "b": 1, "<end>": 2, "c": 3})
        __len__ = staticmethod(lambda: 4)

    monkeypatch.setattr(fingerprints, "only_tokenizer", Tokenizer)
    config = SimpleNamespace(vocab_size=size, eos_token_id=eos)
    trainer = SimpleNamespace(model=SimpleNamespace(config=config))
    assert ("tokenizer" in fingerprints.describe_data(trainer)) == known
    assert "tokenizer" not in fingerprints.describe_data(SimpleNamespace(model=None))


def test_without_a_tokenizer_the_models_config_knows_eos() -> None:
    def trainer(**config: Any) -> Any:
        return SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(**config)))

    known = special_ids(trainer(vocab_size=64, eos_token_id=2, pad_token_id=None))
    ids = torch.tensor([[5, 6, 2], [7, 8, 9]])
    batch = {"input_ids": ids, "labels": ids}
    assert describe_batch(batch, known)["eos_labels"] == 1
    # A default that the model's own vocabulary does not hold says nothing.
    unknown = special_ids(trainer(vocab_size=64, eos_token_id=50256))
    assert "eos_labels" not in describe_batch(batch, unknown)
    assert special_ids(SimpleNamespace(model=None)) is None


@pytest.mark.parametrize(("others", "category"), [(0, "tokenization"), (20, "data")])
def test_bos_that_went_with_many_other_tokens_is_a_part_of_lost_text(
    others: int, category: str
) -> None:
    before = changed(sides()[0], *every_micro("bos_tokens", 2), *every_micro("sequences", 2))
    lost = every_micro("input_tokens", lambda tokens: tokens - 2 * (1 + others))
    rows = [
        change
        for key in ("rows", "texts")
        for change in every_micro(key, {"input_ids": ["x", "y"]})
    ]
    ids = [*every_micro("bos_tokens", 0), *every_micro("sequences", 2), *OTHER_HASHES]
    now = changed(sides()[1], *ids, *rows, *lost, *OTHER_LOSS)
    top = compare_to_baseline(now, before, gates=()).diagnosis.top_suspect
    assert top is not None
    assert top.category == category


def test_what_failed_speaks_before_what_differs_beside_it() -> None:
    """A broken rule of clipping, and kept tensors, each beside a little more work."""
    optimizer = {"updates": 11, "backwards": [2] * 11, "clips_before": 11, "clips_between": 10}
    norm = seen("first_gradient", total=2.0)
    facts = (("exact", "facts"), {"updates": {"optimizers": [optimizer]}})
    work = seen("work", operator_total=exact()["work"]["operator_total"] + 30)
    memory = [{"start_bytes": 0, "live_bytes": [size << 20] * 12} for size in (100, 130)]
    before, now = sides()
    clipped = compare_to_baseline(changed(now, *norm, facts, *work), before, gates=())
    kept = compare_to_baseline(
        changed(now, *work, (("exact", "memory"), memory[1])),
        changed(before, (("exact", "memory"), memory[0])),
        gates=(),
    )
    assert [one.diagnosis.suspects[0].category for one in (clipped, kept)] == [
        "optimizer",
        "memory",
    ]
