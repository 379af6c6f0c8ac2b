# %% [markdown]
# # An own policy of packing against S3, ORCA and pages on demand
# LLaMA-13B on an A100 by their specifications; lengths and forecasts are drawn.

# %%
import pliant


class Shortest(pliant.PackingPolicy):
    """Pages on demand, as `paged`, but the shortest predicted output first: forecast[3] is the median."""

    def priority(self, prompt, forecast, reserved, recent):
        return 0, forecast[3], prompt.id


policies = {"mine": Shortest, "paged": "paged", "s3": "s3", "orca": "orca", "default": "default"}
table = pliant.compare(policies, "bursty:60:8", seeds=2, system="packing")
print(table)
