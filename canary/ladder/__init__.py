"""The speed ladder: one job at four levels of optimisation, timed, guarded and explained.

`levels` says what each level switches, `machine` what this machine can do of it, `launching` starts
the processes, `climb` runs them in order, `guard` holds what was learned against the baseline,
`work` makes sure that all did the same work, `measure` turns launches into ratios with intervals,
`advise` measures each switch on its own, `view` and `document` show what was found. No torch.
"""
