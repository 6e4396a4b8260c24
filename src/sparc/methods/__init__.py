"""The five methods of the paper; loading the class of one (and with it JAX) waits until it is asked for."""

from sparc.config import option
from sparc.methods.registry import (
    MethodEntry,
    all_methods,
    find_method,
    get_method,
    phase_span,
    register_method,
)

__all__ = ["MethodEntry", "all_methods", "find_method", "get_method", "phase_span", "register_method"]

# Colours: the palette of Okabe and Ito, for colour-blind readers; the Oracle, a reference, in dark grey.
# Costs: measured on one core with the preset mujoco.

register_method(
    "sparc",
    "sparc.methods.sparc:Sparc",
    title="SPARC",
    reads="history",
    summary="one phase: the expert learns with the context, the adapter estimates it from the history",
    options={
        "rollout_policy": option("adapter", "the policy that collects experience", choices=("adapter", "expert")),
    },
    cost=1.06,
    history_cost=0.47,
    colour="#D55E00",
    marker="o",
    dash="-",
    prominence=2,
)
register_method(
    "rma",
    "sparc.methods.rma:Rma",
    title="RMA",
    reads="history",
    summary="two phases: first the expert, then the adapter against the frozen expert",
    phases={"expert": 0.75, "adapter": 0.25},
    cost=0.92,
    history_cost=0.11,
    colour="#0072B2",
    marker="s",
    dash=(0, (5, 1.5)),
    prominence=1,
)
register_method(
    "only-obs",
    "sparc.methods.only_obs:OnlyObs",
    title="Only Obs",
    reads="observation",
    summary="no context, no history",
    colour="#CC79A7",
    marker="v",
    dash=(0, (3, 1, 1, 1)),
)
register_method(
    "history-input",
    "sparc.methods.history_input:HistoryInput",
    title="History Input",
    reads="history",
    summary="the history as a plain input, learned by reinforcement",
    cost=1.19,
    history_cost=1.53,
    colour="#009E73",
    marker="^",
    dash=(0, (7, 1.5, 1, 1.5)),
)
register_method(
    "oracle",
    "sparc.methods.oracle:Oracle",
    title="Oracle",
    reads="context",
    summary="the true context as input, also at test time: a reference, not a contender",
    cost=1.03,
    colour="#444444",
    marker="D",
    dash=(0, (1, 1.2)),
)
