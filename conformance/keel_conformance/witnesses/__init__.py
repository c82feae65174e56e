"""Which classes of values and sizes the cases of a plan show, each proved by a generic mutant that they kill."""
