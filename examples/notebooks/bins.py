# %% [markdown]
# # An own policy of bins against padding, one dynamic runtime and Arlo's setting
# Four devices with the latencies of BERT-base that Arlo was published with; `arlo` needs numba.

# %%
import pliant


class Shortest:
    """The shortest text first, in the fastest runtime that takes it."""

    def __init__(self, known):
        self.stream = known.streams[0]

    def choose(self, waiting, now):
        text = min(waiting, key=lambda request: request.length)
        setting, _seconds = self.stream.cost(text.length)
        return setting, [text]


policies = {"mine": Shortest, "first-come": "first-come", "padding": "padding", "default": "default"}
table = pliant.compare(policies, "bursty:2200:1", seeds=2, system="bins")
print(table)
