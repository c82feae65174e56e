"""What the first call of a compiled model costs in a process, if another process has compiled the model before."""
