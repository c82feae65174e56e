"""Models of the zoo as packages, in another process and in the C++ runtime."""
