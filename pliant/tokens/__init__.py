"""After OTAS (Chen et al. 2024): a frozen vision transformer gets prompt tokens added or tokens merged, batch by batch.

*gamma* is the number of prompt tokens added to every layer (positive) or merged away in it (negative): more tokens are
slower and more accurate. *Utility* is what a correct answer before its deadline earns. A *policy* owns the waiting
requests and says which of them run next, and at which gamma; scheduler.py runs any policy.

- default policy: adaptive.py, with price.py and the planner plan.py
- baselines: otas.py, infaas.py and one fixed gamma; all over batched.py and batching.py
- upper bounds on what any scheduler can earn: bound.py
- the network: model.py and merge.py, on a device in runtime.py
"""
