"""Measurements of Keel: the bench, closure and coverage of the operator set, caches, damaged files, the demo."""
