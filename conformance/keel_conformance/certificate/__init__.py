"""What a run was of, sealed: a manifest of hashes that anyone can check, and a sample that anyone can run again."""
