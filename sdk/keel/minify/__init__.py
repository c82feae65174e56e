"""Reduces what fails: the search, the text of tensors and scripts, and the reduction of models."""

from keel.minify.delta_debugging import Deadline, cut_where, cuts, ddmin, greedy_descent
from keel.minify.script_text import LINES, assemble
from keel.minify.tensor_literals import SMALL, UNPACK, on, tensor, text_of

__all__ = [
    "LINES",
    "SMALL",
    "UNPACK",
    "Deadline",
    "assemble",
    "cut_where",
    "cuts",
    "ddmin",
    "greedy_descent",
    "on",
    "tensor",
    "text_of",
]
