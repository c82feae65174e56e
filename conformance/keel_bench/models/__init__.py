"""The models of the zoo, and those whose speed is measured, built offline with random weights."""
