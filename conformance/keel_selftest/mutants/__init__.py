"""Mutants: backends that are each wrong in one place, by what is wrong with them."""
