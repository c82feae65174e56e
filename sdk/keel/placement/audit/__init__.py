"""The auditor: checks a placement, its cost and its memory from the graph and the parts, with nothing of ``solve``."""
