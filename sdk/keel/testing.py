"""What tests of a plugin need: finding it, asking what it takes, compiling calls one by one, seeing the graphs."""

from keel.batch import Asked, Batch, compile_calls
from keel.claims import claims_of
from keel.compiler import compiled_graphs
from keel.discovery import Discovery, discover, find, resolve, survey
from keel.explanation import Explanation
from keel.loop_level import fitted, kernel_launchers
from keel.refusals import refusal
from keel.runtime.prepared_constants import compile_part

__all__ = [
    "Asked",
    "Batch",
    "Discovery",
    "Explanation",
    "claims_of",
    "compile_calls",
    "compile_part",
    "compiled_graphs",
    "discover",
    "find",
    "fitted",
    "kernel_launchers",
    "refusal",
    "resolve",
    "survey",
]
