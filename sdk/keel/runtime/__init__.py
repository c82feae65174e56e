"""Running compiled parts: launch lists, arenas, links between parts, checks."""
