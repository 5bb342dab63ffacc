"""The speed ladder: one job at four levels of optimisation, timed, guarded and explained.

- `levels` lists the switches, `machine` what this machine offers them.
- `launching` starts the processes, `climb` builds the levels, `rounds` times equal work.
- `guard` compares learning with the baseline.
- `measure` turns launches into ratios with intervals, `advise` measures switches one by one.
- `view` and `advise_view` render the results.
"""
