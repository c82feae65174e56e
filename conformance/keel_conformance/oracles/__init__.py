"""What a result must be: judged from the arguments alone, by bounds that are derived and never tuned."""
