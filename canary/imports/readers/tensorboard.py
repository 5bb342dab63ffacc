"""TensorBoard event files, read by TensorBoard's own loader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from canary.errors import InputError
from canary.imports.entries import Entry, Telling, missing, shortened
from canary.imports.files import LARGEST_BINARY, Found

MARK = "tfevents"
SCALARS = "scalars"


def fits(file: Found) -> bool:
    """Whether a file is named as TensorBoard's writers name theirs."""
    return MARK in file.base


def read(files: Sequence[Found], telling: Telling) -> Iterator[Entry]:
    """Yield the scalars of the files, in the order of their first events: a resumed run wrote
    several, and the later one wins.

    Raises:
        InputError: TensorBoard is not installed, or a file is damaged or too large.
    """
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError as error:
        raise missing("TensorBoard events", "tensorboard") from error
    for part, file in enumerate(sorted(files, key=_started)):
        file.open(LARGEST_BINARY).close()
        loader = EventFileLoader(str(file.path))
        seen = 0
        try:
            for event in loader.Load():
                for value in event.summary.value:
                    number = _scalar(value, telling, file)
                    if number is not None:
                        seen += 1
                        yield Entry(event.step, {value.tag: number}, event.wall_time, part)
        except (DecodeError, MemoryError, OverflowError, ValueError) as error:
            raise InputError(
                f"{file.name} is damaged: {shortened(type(error).__name__)}", "name another file"
            ) from error
        if _is_cut(loader):
            telling.tell("the file is cut off or damaged: what follows was not read", file.name)
        if not seen:
            telling.tell("the file has no scalar", file.name)


def _started(file: Found) -> tuple[str, str]:
    """Return the seconds in a name (`events.out.tfevents.<seconds>.<host>`), then the name."""
    after = file.base.partition(f"{MARK}.")[2]
    seconds = after.partition(".")[0]
    return (seconds.zfill(20) if seconds.isdecimal() else "", file.name)


def _scalar(value: Any, telling: Telling, file: Found) -> float | None:
    """Return a summary's number; None, told, for text, images and histograms."""
    kind = value.metadata.plugin_data.plugin_name
    which = value.WhichOneof("value")
    if which == "simple_value":
        return float(value.simple_value)
    if kind == SCALARS and which == "tensor":
        from tensorboard.util.tensor_util import make_ndarray

        try:
            # A shape alone could ask for all memory, so it is looked at first.
            if all(axis.size == 1 for axis in value.tensor.tensor_shape.dim):
                return float(make_ndarray(value.tensor).reshape(-1)[0])
        except (IndexError, KeyError, TypeError, ValueError):
            pass
        telling.tell(f"`{shortened(value.tag)}` is not a number", file.name)
        return None
    telling.tell(f"{kind or which or 'a value'} was not read", file.name)
    return None


def _is_cut(loader: Any) -> bool:
    """Whether the loader stopped before the end: it hides a damaged record as the file's end."""
    try:
        return next(getattr(loader, "_iterator", iter(())), None) is not None
    except Exception:  # noqa: BLE001 - TensorFlow and its stand-in have different errors
        return True
