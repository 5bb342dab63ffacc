"""Which packages go together, and how a set is moved to one that does."""

from __future__ import annotations

from packaging.requirements import Requirement
from packaging.version import Version

from canary.bisect.packages.changes import Change
from canary.bisect.packages.fit import Fit, Installed, Needs, conflicts_of
from canary.bisect.packages.space import PackageSpace


def installed(**packages: tuple[str, ...]) -> Installed:
    """Packages by name: their version, then their requirements."""
    return {
        name: Needs(name, Version(version), tuple(Requirement(text) for text in requires))
        for name, (version, *requires) in packages.items()
    }


CHANGED = tuple(Change(name, Version("1"), Version("2")) for name in ("a", "b", "c", "d"))
FIT = Fit(
    CHANGED,
    installed(a=("1", "b<2"), b=("1",), c=("1",), d=("1",), fixed=("5", "d", "gone>3")),
    installed(a=("2", "b>=2"), b=("2",), c=("2",), d=("2",), fixed=("5", "d", "gone>3")),
)
A, B, C = 1, 2, 4


def test_only_what_no_end_has_is_a_conflict() -> None:
    assert [str(one) for one in FIT.conflicts(A)] == ["a 2 requires b>=2, but b is 1"]
    assert [str(one) for one in FIT.conflicts(B)] == ["a 1 requires b<2, but b is 2"]
    assert FIT.conflicts(0) == FIT.conflicts(15) == FIT.conflicts(A | B | C) == []
    assert "gone is missing" in str(next(iter(conflicts_of(FIT.good))))


def test_a_set_that_does_not_go_together_takes_its_partner_along() -> None:
    assert FIT.repaired(A | C) == A | B | C
    assert FIT.repaired(B | C) == C
    assert FIT.repaired(C) == C


def test_a_package_that_is_the_same_everywhere_sends_its_partner_back() -> None:
    fit = Fit(
        CHANGED[:2],
        installed(a=("1",), b=("1",), fixed=("5", "a<2")),
        installed(a=("2",), b=("2",), fixed=("5", "a<2")),
    )
    assert fit.repaired(1) == 1, "the bad end has this conflict too"
    three = Fit(
        (CHANGED[0], CHANGED[2]),
        installed(a=("1", "c<2"), c=("1",)),
        installed(a=("2", "c<3"), c=("2",)),
    )
    assert three.conflicts(1) == []
    assert three.repaired(2) == 0


def test_packages_that_require_each_other_are_neighbours() -> None:
    names = ["w", "x", "y", "z"]
    changed = tuple(Change(name, Version("1"), Version("2")) for name in names)
    end = installed(w=("1", "z"), x=("1",), y=("1",), z=("1",))
    assert Fit(changed, end, end).order() == [0, 3, 1, 2]


def test_all_offered_sets_go_together_and_can_split_what_is_left() -> None:
    space = PackageSpace([0.25] * 4, FIT.order(), FIT.repaired)
    states = space.states([0.25] * 4)
    assert all(not FIT.conflicts(state) for state in states)
    assert {0, 15}.isdisjoint(states)
    assert any(state & C and not state & A for state in states)
