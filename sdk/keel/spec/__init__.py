"""The operator set: which operators there are, what they mean, what they are made of."""

from keel.spec.bind import bind
from keel.spec.clause import About, Clause
from keel.spec.normal import descent, evens, is_normal, normal_form, overload_of
from keel.spec.op import Budget, Op, Requires, Sample
from keel.spec.opset import MEMBERS, OPSET, decomposition_of
from keel.spec.required import broken

__all__ = [
    "MEMBERS",
    "OPSET",
    "About",
    "Budget",
    "Clause",
    "Op",
    "Requires",
    "Sample",
    "bind",
    "broken",
    "decomposition_of",
    "descent",
    "evens",
    "is_normal",
    "normal_form",
    "overload_of",
]
