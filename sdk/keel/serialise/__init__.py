"""Graphs as files: functional graphs of the operator set with their types, constants, and the opset's version."""
