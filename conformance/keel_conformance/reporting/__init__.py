"""The files that say what came of a run, for people and machines, and the scripts that show its failures."""
