"""The published formulas once more, in plain Python on floats: slow, readable, and what the fast pricing must equal.

Nothing here imports numpy or the code under test, but for the data it reads: specs, the engine's constants and the
candidate cuts of a pipeline. `price.price` gives the same columns for one strategy as `mlaplan.plan.price` does
for a table of them.
"""
