"""What the ledger promises: one headline figure of each system and of each capability.

A new promise is one line: what it is called, what it stands for, and the bench, the part and some words of the target's
name that give its figure. The limit is the target's own. Where a part takes too long, it gets a smallest setting
(`Context.choose`), never a bench of its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A figure that `make ledger` measures. `target` is in the name of exactly one of the part's targets.

    `bench`: one of benchmarks/parts.py, or "demo", whose parts are the systems. `in_ci`: whether CI
    measures it, too: in virtual time, so that it is the same on every machine, and within seconds.
    """

    name: str
    covers: str
    bench: str
    part: str
    target: str = ""
    in_ci: bool = False


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A figure that needs hours, or machines that are not always there; it stands in `benchmarks/results/RESULT.json`."""

    name: str
    covers: str
    result: str
    target: str

    @property
    def command(self) -> str:
        """Return what measures it again."""
        bench, _, part = self.result.partition("-")
        special = {
            "stack": f"make stack-test ONLY={part}",
            "gpu": "python -m pliant.benchmarks.gpu, on a machine with one",
        }
        return special.get(bench, f"pliant bench {bench} --part {part}")


ENTRIES: tuple[Entry, ...] = (
    # First, as it trains the champions that others serve.
    Entry("tokens beside gamma 0", "tokens, live", "demo", "tokens"),
    Entry("bins beside first come, first served", "bins, live", "demo", "bins"),
    Entry("cascade beside its large model", "cascade, live", "demo", "cascade"),
    Entry("packing beside first come, first served", "packing, live", "demo", "packing"),
    Entry("tokens' default beside OTAS", "tokens, policies", "tokens", "policies", "default over otas at 2x", True),
    Entry("tokens' share of the bound", "tokens, policies", "tokens", "policies", "default, share of the fluid", True),
    Entry("tokens on two devices", "several devices", "tokens", "devices", "2 devices at 2x load", True),
    Entry("tokens' planner", "planning", "tokens", "planner", "time per plan, 32 batches"),
    Entry("tokens' kernels beside timm", "kernels", "tokens", "kernels", "gamma 0 against plain timm, images/s"),
    Entry("HTTP, tokens", "HTTP", "tokens", "baselines", "overhead, one in flight"),
    Entry("tokens' scheduler", "scheduling", "tokens", "baselines", "scheduler events per second"),
    Entry("bins beside the published pair", "bins, placement", "bins", "contest", "published pair's, median of", True),
    Entry("bins' planner", "planning", "bins", "planner", "worst time per plan, 200 x 12"),
    Entry("bins' dispatch", "scheduling", "bins", "dispatch", "dispatch by handle"),
    Entry("a node lost", "recovery", "bins", "nodes", "node loss, shared: accepted requests neither"),
    Entry("packing's goodput", "packing, admission", "packing", "slo", "goodput at 1.5x", True),
    Entry("packing's promise", "packing, admission", "packing", "slo", "accepted requests that keep", True),
    Entry("packing's decisions", "scheduling", "packing", "slo", "a decision with 256 running"),
    Entry("packing as published", "packing, simulator", "packing", "published", "S3's Table 2"),
    Entry("packing's large batches", "packing, engine", "packing", "batches", "tokens/s at 128 sequences over 12"),
    Entry("prompts that begin alike", "packing, engine", "packing", "alike", "all at once: over without sharing"),
    Entry("false alarms", "watch", "watch", "quiet", "false alarms in 20 quiet months"),
    Entry("a worse release is taken back", "trials", "watch", "rollout", "3 points worse, taken back in time"),
    Entry("no worse release without proof", "trials", "watch", "rollout", "worse by 10 or 40 points"),
    Entry("a good release is kept", "trials", "watch", "rollout", "good challengers taken back"),
    Entry("rollback under load", "trials", "watch", "rollback", "rollback: until the next answer"),
    Entry("no request lost in a rollback", "trials", "watch", "rollback", "rollback under load: failed requests"),
)
"""In the order in which they are measured, one after the other."""

ELSEWHERE: tuple[Elsewhere, ...] = (
    Elsewhere("tokens in other worlds", "tokens, worlds", "robust-tokens", "clever, least median"),
    Elsewhere("bins in other worlds", "bins, worlds", "robust-bins", "clever, least median"),
    Elsewhere("cascade in other worlds", "cascade, worlds", "robust-cascade", "clever, least median"),
    Elsewhere("packing in other worlds", "packing, worlds", "robust-packing", "clever, least median"),
    Elsewhere("tokens beside three services", "tokens, live", "tokens-live", "live at 2x load"),
    Elsewhere("tokens' points on real pictures", "tokens, points", "tokens-photographs", "at most 1 point lost"),
    Elsewhere("bins beside BentoML", "bins, live", "bins-live", "live, loaded: mean latency over that of bentoml"),
    Elsewhere(
        "cascade beside Tabi",
        "cascade, planner",
        "cascade-contest",
        "seconds over tabi with our levels, equal accuracy, worst",
    ),
    Elsewhere("cascade's promise", "cascade, planner", "cascade-contest", "promises missed, bought labels, all"),
    Elsewhere("packing beside S3", "packing, policies", "packing-study", "13B at 90 requests/s: mean completion below"),
    Elsewhere("packing on a real model", "packing, engine", "packing-real", "smollm2-135m-instruct, 32 at once"),
    Elsewhere("packing in vLLM", "packing, vLLM", "packing-vllm", "1.2x, Poisson: mean completion"),
    Elsewhere("GPU kernels", "GPU", "gpu", "tokens: images/s of graphs"),
    Elsewhere("a change is learnt from", "watch", "stack-changes-cascade", "cascade: from a change"),
    Elsewhere("from nothing to two versions", "stack", "stack-whole", "from nothing"),
    Elsewhere("a back-up restored", "stack", "stack-backup", "differences between"),
)
