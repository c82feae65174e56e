"""Who compiles what: an owner for each call, convex parts, a certificate, and a graph per part."""

from keel.partition.assign import place
from keel.partition.bill import PartBill, bill
from keel.partition.certificate import check
from keel.partition.cluster import cluster
from keel.partition.launches import Solution, solve
from keel.partition.plan import Claim, Part, Plan, Refusals
from keel.partition.pricing import Pricing
from keel.partition.problem import Problem, Saving, Tensors, problem, tensors
from keel.partition.split import PartGraph, split
from keel.partition.units import Units, units_of

__all__ = [
    "Claim",
    "Part",
    "PartBill",
    "PartGraph",
    "Plan",
    "Pricing",
    "Problem",
    "Refusals",
    "Saving",
    "Solution",
    "Tensors",
    "Units",
    "bill",
    "check",
    "cluster",
    "place",
    "problem",
    "solve",
    "split",
    "tensors",
    "units_of",
]
