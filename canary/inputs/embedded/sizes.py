"""Names and sizes of the Llamas with random weights. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from canary.errors import InputError, did_you_mean, nearest

_PREFIX = "embedded/random-"


@dataclass(frozen=True)
class LlamaShape:
    """The size of a Llama; heads are 64 wide and do not share keys and values."""

    hidden: int
    intermediate: int
    layers: int


# Parameters within 10% of the name at a vocabulary of 1,024 (tests/unit/inputs/test_embedded.py).
RANDOM_SIZES: dict[str, LlamaShape] = {
    "10m": LlamaShape(320, 864, 8),
    "30m": LlamaShape(512, 1376, 9),
    "70m": LlamaShape(768, 2048, 10),
    "160m": LlamaShape(1024, 2752, 12),
    "410m": LlamaShape(1536, 4096, 14),
    "1b": LlamaShape(2048, 5504, 20),
}


def parse_random_name(name: str) -> str | None:
    """Return the size in `embedded/random-<size>`, or None for a name of another form.

    Raises InputError for a size that RANDOM_SIZES does not hold.
    """
    if not name.startswith(_PREFIX):
        return None
    size = name.removeprefix(_PREFIX)
    require_known(size)
    return size


def require_known(size: str) -> None:
    """Raise InputError for a size that RANDOM_SIZES does not hold."""
    if size in RANDOM_SIZES:
        return
    near = nearest(size, RANDOM_SIZES)
    suggestion = f" ({did_you_mean(_PREFIX + near)})" if near else ""
    raise InputError(
        f"no random model '{_PREFIX}{size}'{suggestion}",
        f"known sizes: {', '.join(RANDOM_SIZES)}",
    )
