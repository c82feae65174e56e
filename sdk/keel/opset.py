"""The operator set as a vendor reads it: its members, their clauses, how a call binds and what it decomposes to."""

from keel.spec import MEMBERS, OPSET, About, Clause, Op, decomposition_of, overload_of
from keel.spec.bind import bind
from keel.spec.device_facts import GELU_BY_TANH
from keel.spec.freedoms import Freedoms, may_be_off, may_compute, may_round
from keel.spec.numerics import Numerics, Pole, Results

__all__ = [
    "GELU_BY_TANH",
    "MEMBERS",
    "OPSET",
    "About",
    "Clause",
    "Freedoms",
    "Numerics",
    "Op",
    "Pole",
    "Results",
    "bind",
    "decomposition_of",
    "may_be_off",
    "may_compute",
    "may_round",
    "overload_of",
]
