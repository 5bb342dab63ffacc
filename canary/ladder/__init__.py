"""The speed ladder: one job at four levels of optimisation, timed, guarded and explained.

`levels` lists the switches, `machine` what this machine offers them, `launching` starts the
processes, `climb` builds the levels, `guard` compares learning with the baseline, `same_work`
compares the work, `measure` turns launches into ratios with intervals, `advise` measures switches
one by one, `view` and `advise_view` render the results. No torch.
"""
