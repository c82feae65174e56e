"""Compiled graphs as data, and their cache."""
