"""Jobs measured in processes that may die, and kept as they end: what an interrupted run has seen is not lost."""
