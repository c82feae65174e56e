"""How fast models are under Keel beside eager PyTorch and Inductor, each compiler in a process of its own."""
