"""Graphs as files: functional graphs of the operator set with their types, constants, and the opset's version."""

from keel.serialize.load import load_graph
from keel.serialize.save import save_graph

__all__ = ["load_graph", "save_graph"]
