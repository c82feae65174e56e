"""The operator set: which operators there are, what they mean, what they are made of."""
from keel.spec.op import Op
from keel.spec.opset import OPSET, decomposition_of

__all__ = ["OPSET", "Op", "decomposition_of"]
