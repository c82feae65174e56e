"""The symbolic language of sizes and numbers, derived from one table of its functions.

PyTorch describes a number as a sympy expression over symbols. ``functions`` declares each function once;
``evaluate``, ``python_text``, ``c_text``, ``bounds`` and ``kernel_form`` all read that table.
"""

from keel.symbols.bounds import bounds
from keel.symbols.evaluate import evaluate, exact
from keel.symbols.functions import FUNCTIONS, Function, Kind, function_of, kind_of
from keel.symbols.host import BitsOfFloat, FloatOfBits, HostNumbers, kernel_form
from keel.symbols.linear_solve import implied_symbols, solve_linear
from keel.symbols.printing import C_PRELUDE, PYTHON_NAMES, c_text, python_text
from keel.symbols.ranges import Range
from keel.symbols.symbol_names import checked_name, free_symbols

__all__ = [
    "C_PRELUDE",
    "FUNCTIONS",
    "PYTHON_NAMES",
    "BitsOfFloat",
    "FloatOfBits",
    "Function",
    "HostNumbers",
    "Kind",
    "Range",
    "bounds",
    "c_text",
    "checked_name",
    "evaluate",
    "exact",
    "free_symbols",
    "function_of",
    "implied_symbols",
    "kernel_form",
    "kind_of",
    "python_text",
    "solve_linear",
]
