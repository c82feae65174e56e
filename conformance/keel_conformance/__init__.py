"""Checks and measurements of backends, shared with their vendors."""
