"""Placement: chooses an owner for each call, forms convex parts, certifies the plan, and builds a graph for each
part.
"""

from keel.placement.audit.itemized_cost import PartCost, itemize
from keel.placement.audit.verify import verify_placement
from keel.placement.call_graph import CallGraph, call_graph_of
from keel.placement.cluster import cluster
from keel.placement.part_graphs import PartGraph, build_part_graphs
from keel.placement.place import place
from keel.placement.placement import CostEstimate, Part, Plan, Refusals
from keel.placement.solve.build_problem import Pricing
from keel.placement.solve.problem import Problem, Saving, Tensors, problem, tensors
from keel.placement.solve.solver import SolvedPlacement, solve_placement

__all__ = [
    "CallGraph",
    "CostEstimate",
    "Part",
    "PartCost",
    "PartGraph",
    "Plan",
    "Pricing",
    "Problem",
    "Refusals",
    "Saving",
    "SolvedPlacement",
    "Tensors",
    "build_part_graphs",
    "call_graph_of",
    "cluster",
    "itemize",
    "place",
    "problem",
    "solve_placement",
    "tensors",
    "verify_placement",
]
