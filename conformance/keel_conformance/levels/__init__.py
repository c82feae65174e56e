"""Levels of coverage: what a backend must take, not only do right. They are measured from families of models."""
