"""Packages: compiled programs in files, with machine code and weights."""
