"""The models of the zoo, built offline with random weights."""
