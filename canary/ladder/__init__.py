"""The speed ladder: one job at four levels of optimisation, timed, guarded and explained.

- `switches` lists what can be faster, and what this machine offers; `site` starts launches.
- `guard` compares learning with the baseline, `timing` turns launches into ratios with intervals.
- `climb` builds the levels; `run` is the way in.
- `results` are the types that are stored, `report` puts them into words.
"""
