"""The old name of ``keel.serialize``, kept for one release."""

from keel.serialize import load_graph, save_graph

__all__ = ["load_graph", "save_graph"]
