"""Cascade: a small classifier answers where it is sure, a larger one where it is not, after Tabi (Wang et al., EuroSys
2023).

The words of this package:

- *level*: one classifier of a task; levels ascend in size. A *regression* is a task without classes.
- *candidate*: a path of levels with a *gate* between each two, which decides whether a text goes on.
- *gain*: what the next level is expected to add to the probability of a correct answer.
- *pruning*: dropping words before the next level, by the attention that they received (their *importance*).
- *promise*: the accuracy that a candidate keeps, at a stated confidence, beyond the texts that it was planned on.
"""
