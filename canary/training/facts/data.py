"""What tokenizer, chat template and model would do by themselves with a text of the training."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, cast

from canary.record.exact import Exact
from canary.record.facts import Facts, LoadFacts, TextFacts
from canary.training.collectors.calls import own_calls
from canary.training.collectors.living import only_tokenizer
from canary.training.collectors.loads import LOADS
from canary.training.exact.effective import own_method
from canary.training.exact.fingerprints import special_ids, stops_of, tokenizer_of
from canary.training.facts.new_tokens import new_tokens
from canary.training.facts.open_turns import open_turns

ROWS = 16
"""Rows of the data set whose answers are compared."""
ADVANTAGES = ("_generate_and_score_completions", "_prepare_inputs")
"""Methods of trl's online trainers that make groups of completions."""
LEAST = 4
"""Characters of an answer that must be in its row, to say that it is the row's."""


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
        """Add what the tokenizer says, and where generation stops."""
        if self._own:
            facts["own_advantages"] = self._own
        found: TextFacts = {}
        stops = stops_of(self._trained)
        if stops:
            found["stops"] = sorted(stops)
        tokenizer = self._tokenizer()
        if tokenizer is not None:
            bos = getattr(tokenizer, "bos_token_id", None)
            # Batches count the BOS of the trainer's tokenizer, or else of the model's config.
            if isinstance(bos, int) and bos == getattr(
                special_ids(self._trained), "bos_token_id", None
            ):
                with own_calls():
                    self._ask(tokenizer, bos, found)
            with own_calls():
                self._compare_answers(tokenizer, found)
                seen = open_turns(tokenizer, self._rows())
                if seen is not None:
                    found["rows_read"], found["rows_open"] = seen
        added = new_tokens(getattr(self._trained, "model", None), self._rows())
        if added is not None:
            found["new_tokens"] = added
        if failed := LOADS.failed():
            facts["loads"] = [cast(LoadFacts, one) for one in failed]
        if found:
            facts["texts"] = found

    def _rows(self) -> Any:
        """Return the rows as they are stored, None without; a transform of the user's may draw
        random numbers, and any other kind of data set runs the user's code."""
        rows: Any = getattr(self._trained, "train_dataset", None)
        datasets = sys.modules.get("datasets")
        if datasets is None or type(rows) is not datasets.Dataset:
            return None
        return rows.with_format(None)

    def _tokenizer(self) -> Any:
        found = tokenizer_of(self._trained) or only_tokenizer()
        found = getattr(found, "tokenizer", found)  # a processor holds one
        return found if hasattr(found, "get_vocab") else None

    def _ask(self, tokenizer: Any, bos: int, found: TextFacts) -> None:
        ids = _as_tokenized(tokenizer)
        if ids:
            found["sets_bos"] = ids[0] == bos
        if getattr(tokenizer, "chat_template", None):
            chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
            try:
                text = tokenizer.apply_chat_template(chat, tokenize=False)
            except Exception:  # noqa: BLE001 - a template may refuse any chat
                return
            found["template_sets_bos"] = str(text).startswith(str(tokenizer.bos_token))

    def _compare_answers(self, tokenizer: Any, found: TextFacts) -> None:
        """Compare last answers of the data set's conversations with the rows made from them."""
        rows = self._rows()
        if rows is None or not {"messages", "input_ids"} <= {*rows.column_names}:
            return
        limit = getattr(getattr(self._trained, "args", None), "max_length", None)
        asked = dropped = 0
        for number in range(min(ROWS, len(rows))):
            row = rows[number]
            answer = _last_answer(row["messages"])
            if not answer or (isinstance(limit, int) and len(row["input_ids"]) >= limit):
                continue
            # Both pass through the tokenizer, which may change a text by itself.
            ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
            wanted, there = (_plain(tokenizer, one) for one in (ids, row["input_ids"]))
            # Whatever ends the answer ends each of its ends: the longest is found by halves.
            end = bisect_left(range(len(wanted)), True, key=lambda at: wanted[at:] in there)
            if len(wanted) - end >= LEAST:
                asked += 1
                dropped += end > 0
        if asked:
            found["answers"], found["answers_dropped"] = asked, dropped


def _as_tokenized(tokenizer: Any) -> list[int]:
    """Return the ids of a short text as the tokenizer gives them by default."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if hasattr(backend, "encode"):
        made: Any = backend.encode("a")
        kept = zip(made.ids, made.attention_mask, strict=True)
        return [int(one) for one, is_there in kept if is_there]
    return [int(one) for one in tokenizer("a")["input_ids"]]


def _last_answer(messages: Any) -> str:
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        return ""
    content = last.get("content")
    return content if isinstance(content, str) else ""


def _plain(tokenizer: Any, ids: Any) -> str:
    """Return the text of ids, without white space."""
    return "".join(str(tokenizer.decode(ids, skip_special_tokens=False)).split())
