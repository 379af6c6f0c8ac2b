# %% [markdown]
# # An own policy of tokens against published ones
# The device and the requests are those that OTAS was published with; `trace` may be recorded arrivals in seconds.

# %%
import pliant


class Mine:
    """The largest gamma at which all that wait would be answered before the earliest deadline."""

    def __init__(self, known):
        self.known = known

    def choose(self, waiting, now):
        batch, launches = waiting[:64], -(-len(waiting) // 64)
        seconds = {gamma: launches * self.known.at(gamma, len(batch)) for gamma in self.known.latency.settings}
        able = [gamma for gamma, needed in seconds.items() if needed <= batch[0].deadline - now]
        return max(able, default=min(seconds)), batch


policies = {"mine": Mine, "otas": "otas", "slackfit": "slackfit", "pets": "pets", "default": "default"}
table = pliant.compare(policies, "bursty:700:5", seeds=2)
print(table)

# %%
if hasattr(table, "groupby"):  # with pandas
    print(table.groupby("policy").median().sort_values("of_bound"))  # .plot.bar(y=["attainment", "of_bound"])
