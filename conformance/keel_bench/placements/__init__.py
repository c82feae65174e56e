"""The bench of placement by cost: how good it is, how fast, and whether what it places is right."""
