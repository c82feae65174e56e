"""Runs a functional graph in float64 and in eager PyTorch, node by node, and judges a backend's results against that.

The error budget of a result follows from the declarations of the operators, so that no legal evaluation is over it: in
a wider dtype, in another order of summation, or with operands cut to a format that the backend declares.
"""

from keel.error_budgets.judged_part import JudgedResult, judge_part, judge_values
from keel.error_budgets.judgment import Budget, Judgment, budget_of, judge
from keel.error_budgets.node_runs import Expected, NodeRuns

__all__ = [
    "Budget",
    "Expected",
    "JudgedResult",
    "Judgment",
    "NodeRuns",
    "budget_of",
    "judge",
    "judge_part",
    "judge_values",
]
