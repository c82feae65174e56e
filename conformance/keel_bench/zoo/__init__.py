"""PyTorch's operator samples and the models of the zoo, in every way to run them, against eager and ``aot_eager``."""
