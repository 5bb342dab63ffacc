"""Searches among suspects: pure engines that know no process, clock or git."""

from canary.bisect.searching.exact import ExactSearch, exact_search

__all__ = ["ExactSearch", "exact_search"]
