"""A transformer trained by several processes: eager PyTorch, Inductor and Keel under DDP, FSDP2 and tensor parallel."""
