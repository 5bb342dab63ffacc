"""Known faults of the training packages, as data: one YAML per fault, and who it applies to.

No module of this package starts anything or imports a training package. `advisory` reads the files,
`condition` is their small language, `facts` says what a record tells, `matching` joins them.
"""
