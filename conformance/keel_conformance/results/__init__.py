"""What came of it: verdicts, their totals, what was seen where a call ran, and how far results are off."""
