"""Keel: put a PyTorch 2 backend under any accelerator.  These are the public names, and nothing else."""
from keel.discover import Discovery, discover, find, resolve, survey
from keel.errors import KeelError, KeelWarning
from keel.plugin import (
    API,
    Backend,
    Call,
    Extern,
    Limits,
    LoopTarget,
    Refusal,
    Rule,
    Source,
    Support,
    refusal,
)
from keel.types import SymType, TensorType

__all__ = [
    "API",
    "Backend",
    "Call",
    "Discovery",
    "Extern",
    "KeelError",
    "KeelWarning",
    "Limits",
    "LoopTarget",
    "Refusal",
    "Rule",
    "Source",
    "Support",
    "SymType",
    "TensorType",
    "discover",
    "find",
    "refusal",
    "resolve",
    "survey",
]
