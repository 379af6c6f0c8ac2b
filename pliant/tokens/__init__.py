"""After OTAS (Chen et al. 2024): a frozen vision transformer gets prompt tokens added or tokens merged, batch by batch.

*gamma* is the number of prompt tokens added to every layer (positive) or merged away in it (negative): more tokens are
slower and more accurate. *Utility* is what a correct answer before its deadline earns. A *policy* owns the waiting
requests and says which of them run next, and at which gamma; scheduler.py runs any policy.

- default policy: adaptive.py, with the price of device time and the planner
- baselines: otas.py, and batched.py with one fixed gamma and INFaaS
- upper bounds on what any scheduler can earn: bound.py
- the network: model.py, on a device in runtime.py
"""
