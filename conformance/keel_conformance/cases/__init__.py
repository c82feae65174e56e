"""What is tried: cases as data, from which each process makes the same arguments again."""
