"""Triton on NVIDIA GPUs as a loop-level backend."""
from keel_triton.target import target

__all__ = ["target"]
