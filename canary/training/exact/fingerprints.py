"""Hashes of a trainer's data and tokenizer."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sized
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from canary.record.exact import Data, SpecialToken, Tokenizer
from canary.training.collectors.aside import living

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_ROWS = 20_000
"""Only the first rows are hashed. Later ones still show in the row count and in the batches."""


def dataset_fingerprint(dataset: Iterable[Any]) -> str:
    """Return sha256 over the rows as canonical JSON, one per line; their order matters."""
    digest = hashlib.sha256()
    for row in islice(dataset, MOST_ROWS):
        digest.update(_canonical(row).encode() + b"\n")
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Return hashes of vocabulary, chat template and pipeline, and the special tokens with ids."""
    template = tokenizer.chat_template
    special: dict[str, SpecialToken] = {
        name: {"token": str(token), "id": tokenizer.convert_tokens_to_ids(str(token))}
        for name, token in tokenizer.special_tokens_map.items()
        if isinstance(token, str)
    }
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    pipeline = None
    if hasattr(backend, "to_str"):
        whole = json.loads(backend.to_str())
        pipeline = _sha256(_canonical({part: whole.get(part) for part in PIPELINE}))
    return {
        "vocab_sha256": _sha256(_canonical(tokenizer.get_vocab())),
        "chat_template_sha256": None if template is None else _sha256(_canonical(template)),
        "pipeline_sha256": pipeline,
        "special_tokens": special,
    }


IDS = ("eos_token_id", "bos_token_id", "pad_token_id")
PIPELINE = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def special_ids(trainer: Any) -> Any:
    """Return an object with the ids of special tokens: the trainer's tokenizer, or else those ids
    of the model's config that are single numbers in its vocabulary. None without either."""
    tokenizer = tokenizer_of(trainer)
    if tokenizer is not None:
        return tokenizer
    config = getattr(trainer.model, "config", None)
    size = getattr(config, "vocab_size", None)
    if not isinstance(size, int):
        return None
    found = {name: getattr(config, name, None) for name in IDS}
    known = {k: v for k, v in found.items() if isinstance(v, int) and 0 <= v < size}
    return SimpleNamespace(**known)


def stops_of(trainer: Any) -> frozenset[int]:
    """Return the tokens at which the trainer's model stops to generate: those of its generation
    config, or else of its config. Empty for a model that does not generate."""
    model: Any = getattr(trainer.model, "module", trainer.model)
    if not hasattr(model, "generate"):
        return frozenset()
    known = (getattr(model, "generation_config", None), getattr(model, "config", None))
    said = (getattr(one, "eos_token_id", None) for one in known)
    several = next((one for one in said if one is not None), ())
    listed = several if isinstance(several, list | tuple) else (several,)
    return frozenset(one for one in listed if isinstance(one, int))


def tokenizer_of(trainer: Any) -> Any:
    """Return the tokenizer or processor of the trainer (by either name) or of its collator."""
    found = getattr(trainer, "processing_class", None) or getattr(trainer, "tokenizer", None)
    return found or getattr(getattr(trainer, "data_collator", None), "tokenizer", None)


def only_tokenizer() -> Any:
    """Return the only tokenizer of transformers, or one of several that write the same; else
    None."""
    base: Any = getattr(sys.modules.get("transformers"), "PreTrainedTokenizerBase", None)
    found = [] if base is None else living(base)
    kinds = {
        (
            *(type(one), len(one), str(getattr(one, "chat_template", None))),
            *getattr(one, "all_special_ids", ()),
        )
        for one in found
    }
    return found[0] if len(kinds) == 1 else None


def text_tokenizer(trainer: Any) -> Any:
    """Return what reads texts: of the trainer, or the only one of this process; None without."""
    found = tokenizer_of(trainer) or only_tokenizer()
    return getattr(found, "tokenizer", found)  # a processor holds one


def _known_tokenizer(trainer: Any) -> Any:
    """Return the trainer's tokenizer; None without. It may be the only one of this process, if the
    model's config has its size and its EOS."""
    found = tokenizer_of(trainer)
    if found is None and (only := only_tokenizer()) is not None:
        config = getattr(getattr(trainer, "model", None), "config", None)
        size, eos = (getattr(config, name, None) for name in ("vocab_size", "eos_token_id"))
        if isinstance(size, int) and eos == only.eos_token_id and len(only) <= size:
            found = only
    return getattr(found, "tokenizer", found)  # a processor holds one


def describe_data(trainer: Any) -> Data:
    """Return `exact.data`. Rows are hashed if they can be read twice and in order. A stream or a
    Dataset of tensors shows only in the batches."""
    facts: Data = {}
    dataset = getattr(trainer, "train_dataset", None)
    if isinstance(dataset, Sized):
        facts["rows"] = len(dataset)
        if hasattr(dataset, "column_names") and isinstance(dataset, Iterable):
            facts["dataset_sha256"] = dataset_fingerprint(dataset)
    tokenizer = _known_tokenizer(trainer)
    if hasattr(tokenizer, "get_vocab"):
        facts["tokenizer"] = tokenizer_fingerprint(tokenizer)
    return facts


def _canonical(value: object) -> str:
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_other
    )


def _other(value: object) -> str:
    """Return text for a value that JSON lacks; a memory address would differ in each run."""
    text = str(value)
    return type(value).__name__ if " at 0x" in text else text


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
