# %% [markdown]
# # An own cascade against Tabi, the best single model and all models together
# Answers of three levels are drawn, and known for each text. Needs scipy; `default` also scikit-learn.

# %%
import pliant


def mine(data):
    """The first level, and the large model where the first is less than 90% sure."""
    return pliant.Candidate("mine", (0, len(data.levels) - 1), (pliant.Gate("tabi", 0.9, 1e6),), 0, 0, 0, ())


policies = {"mine": mine, "tabi": "tabi", "single": "single", "voting": "voting", "default": "default"}
table = pliant.compare(policies, "bursty:150:3", seeds=2, system="cascade")
print(table)
