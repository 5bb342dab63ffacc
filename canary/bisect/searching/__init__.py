"""Searches among suspects: pure engines that know no process, clock or git."""

from canary.bisect.searching.exact import ExactSearch, exact_search
from canary.bisect.searching.noisy import NoisySearch, noisy_search

__all__ = ["ExactSearch", "NoisySearch", "exact_search", "noisy_search"]
