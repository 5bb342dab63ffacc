"""Objects that live in this process."""

from __future__ import annotations

import gc
import sys
from typing import Any


def living(kind: type) -> list[Any]:
    """Return the objects of a kind that the garbage collector knows. The count of live tensors
    hides older ones from it while a training runs. A proxy that lies about its class is none."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


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
