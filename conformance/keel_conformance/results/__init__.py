"""What came of it: verdicts, their totals, and the files that say so to people and machines."""
