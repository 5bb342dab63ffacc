"""What tokenizer, chat template and model would do by themselves with a text of the training."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, cast

import torch

from canary.record.exact import Exact
from canary.record.facts import Facts, LoadFacts, NewTokens, TextFacts
from canary.training.collectors.calls import own_calls
from canary.training.collectors.taps import LOADS
from canary.training.exact.effective import own_method
from canary.training.exact.fingerprints import special_ids, text_tokenizer

ROWS = 16
"""Rows of the data set that are decoded."""
SEARCHED = 64
"""Rows that are searched for new tokens."""
ADVANTAGES = ("_generate_and_score_completions", "_prepare_inputs")
"""Methods of trl's online trainers that make groups of completions."""
LEAST = 4
"""Characters without white space that begin an answer."""
CHAT = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})


class Texts:
    """Asks the tokenizer when the look is over, and calls nothing that counts or draws."""

    subject = "tokenizer"

    def __init__(self, trained: Any) -> None:
        self._trained = trained
        self._own: str | None = None

    def begin(self) -> None:
        """Ask before the canary wraps methods; hook nothing."""
        self._own = own_method(self._trained, ADVANTAGES)

    def end(self) -> None:
        """Nothing was hooked."""

    def tell(self, facts: Facts, exact: Exact) -> None:
        """Add what the tokenizer says."""
        if self._own:
            facts["own_advantages"] = self._own
        found: TextFacts = {}
        rows = self._rows()
        tokenizer = text_tokenizer(self._trained)
        if hasattr(tokenizer, "get_vocab"):
            with own_calls():
                self._ask(tokenizer, found)
                seen = open_turns(tokenizer, rows)
            if seen is not None:
                found["rows_read"], found["rows_open"] = seen
        added = new_tokens(getattr(self._trained, "model", None), rows)
        if added is not None:
            found["new_tokens"] = added
        if failed := LOADS.failed():
            facts["loads"] = [cast(LoadFacts, one) for one in failed]
        if found:
            facts["texts"] = found

    def _rows(self) -> Any:
        """Return the rows as they are stored, if they are dicts with `input_ids`; else None. A
        transform may draw random numbers, and any other kind of data set runs the user's code."""
        rows: Any = getattr(self._trained, "train_dataset", None)
        datasets = sys.modules.get("datasets")
        if datasets is not None and type(rows) is datasets.Dataset:
            rows = rows.with_format(None)
        elif type(rows) is not list:
            return None
        return rows if len(rows) and type(rows[0]) is dict and "input_ids" in rows[0] else None

    def _ask(self, tokenizer: Any, found: TextFacts) -> None:
        """Ask whether texts begin with BOS."""
        bos = getattr(tokenizer, "bos_token_id", None)
        # Batches count the BOS of the trainer's tokenizer, or else of the model's config.
        counted = getattr(special_ids(self._trained), "bos_token_id", None)
        if not isinstance(bos, int) or bos != counted:
            return
        ids = _as_tokenized(tokenizer)
        if ids:
            found["sets_bos"] = ids[0] == bos
        text = _rendered(tokenizer)
        if text is not None:
            found["template_sets_bos"] = text.startswith(str(tokenizer.bos_token))


def _as_tokenized(tokenizer: Any) -> list[int]:
    """Return the ids of a short text as the tokenizer gives them by default."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if hasattr(backend, "encode"):
        made: Any = backend.encode("a")
        kept = zip(made.ids, made.attention_mask, strict=True)
        return [int(one) for one, is_there in kept if is_there]
    return [int(one) for one in tokenizer("a")["input_ids"]]


def _rendered(tokenizer: Any, *, goes_on: bool = False) -> str | None:
    """Return a short chat as the template writes it, and the start of another answer if it
    `goes_on`; None without a template, or if it refuses the chat."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    settings = {"tokenize": False, "add_generation_prompt": goes_on}
    try:
        return str(tokenizer.apply_chat_template([*CHAT], **settings))
    except Exception:  # noqa: BLE001 - a template may refuse any chat
        return None


def _plain(tokenizer: Any, ids: Any) -> str:
    """Return the text of ids, without white space."""
    return "".join(str(tokenizer.decode(ids)).split())


def open_turns(tokenizer: Any, rows: Any) -> tuple[int, int] | None:
    """Return how many rows were read, and how many end as the chat template begins an answer; None
    if the template begins none."""
    if rows is None:
        return None
    closed, opened = (_rendered(tokenizer, goes_on=goes_on) for goes_on in (False, True))
    if closed is None or opened is None or not opened.startswith(closed):
        return None
    start = "".join(opened.removeprefix(closed).split())
    if len(start) < LEAST:
        return None
    ends = [str(getattr(tokenizer, f"{name}_token", None)) for name in ("eos", "pad")]
    texts = [_plain(tokenizer, rows[at]["input_ids"]) for at in range(min(ROWS, len(rows)))]
    return len(texts), sum(_without(ends, text).endswith(start) for text in texts)


def _without(ends: list[str], text: str) -> str:
    """Return a text without EOS or padding at its end."""
    while end := next((one for one in ends if text.endswith(one)), ""):
        text = text.removesuffix(end)
    return text


def new_tokens(model: Any, rows: Any) -> NewTokens | None:
    """Return what is known of the tokens that `resize_token_embeddings` added; None if there are
    none, or if neither their embeddings nor the rows can be read."""
    resized = LOADS.resized(model) if isinstance(model, torch.nn.Module) else None
    if resized is None or rows is None:
        return None
    inner, first, made = resized
    table = inner.get_input_embeddings()
    heads = [one for one in (inner.get_output_embeddings(),) if one is not None]
    values = [value for one in (table, *heads) for value in one.parameters()]
    weight = getattr(table, "weight", None)
    if weight is None:
        return None
    now = weight.detach()[first : first + len(made)].float().cpu()
    count = min(SEARCHED, len(rows))
    return {
        "first": first,
        "frozen": not any(value.requires_grad for value in values) and torch.equal(now, made),
        "rows": count,
        "rows_with": sum(_highest_read(rows[at]) >= first for at in range(count)),
    }


def _highest_read(row: Mapping[str, Any]) -> int:
    """Return the largest id of a row but for padding, which no position reads."""
    ids = row["input_ids"]
    mask = row.get("attention_mask") or [1] * len(ids)
    return max((one for one, read in zip(ids, mask, strict=False) if read), default=0)
