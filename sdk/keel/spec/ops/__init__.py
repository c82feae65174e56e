"""Composites by family."""
