"""The only tokenizer of a process, and what lives beside it."""

from __future__ import annotations

from typing import Any

from canary.training.collectors.aside import living


class Unhashable(type):
    """A class of classes that cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


class Odd(metaclass=Unhashable):
    """Has such a class."""


class Liar:
    """Says that it is of another class."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return dict


def test_objects_of_a_kind_are_found_beside_odd_ones() -> None:
    odd, liar = Odd(), Liar()
    assert any(one is liar for one in living(Liar))
    assert any(one is odd for one in living(Odd))
    assert not any(one is liar for one in living(dict))
