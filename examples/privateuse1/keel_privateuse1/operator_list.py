"""The operators of ATen for which the device has kernels. All others fall back to the host, and are counted."""

from __future__ import annotations

FILLS = ("arange", "eye", "fill_", "linspace", "zero_")
UNARY = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos", "cosh", "erf", "erfc"),
    *("erfinv", "exp", "exp2", "expm1", "floor", "frac", "gelu", "hardsigmoid", "hardswish", "hardtanh", "isnan"),
    *("leaky_relu", "log", "log10", "log1p", "log2", "logical_not", "mish", "nan_to_num", "neg", "reciprocal", "relu"),
    *("round", "rsqrt", "sgn", "sigmoid", "sign", "signbit", "silu", "sin", "sinh", "softplus", "sqrt", "tan", "tanh"),
    "trunc",
)
BINARY = (
    *("add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "copysign", "div", "eq", "floor_divide", "fmax"),
    *("fmin", "fmod", "ge", "gt", "le", "logical_and", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul"),
    *("ne", "pow", "remainder", "sub"),
)
TERNARY = ("addcdiv", "addcmul", "clamp", "clamp_max", "clamp_min", "lerp", "masked_fill_", "where")
GRADIENTS = ("gelu_backward", "sigmoid_backward", "silu_backward", "tanh_backward", "threshold_backward")
REDUCTIONS = (
    *("all", "amax", "amin", "any", "argmax", "argmin", "cumprod", "cumsum", "linalg_vector_norm", "max", "mean"),
    *("min", "norm", "prod", "std", "sum", "var", "_log_softmax", "_log_softmax_backward_data", "_softmax"),
    *("_softmax_backward_data", "equal"),
)
INDEXED = (
    *("_index_put_impl_", "embedding_dense_backward", "flip", "gather", "index", "index_add", "index_select"),
    *("masked_select", "nonzero", "scatter", "scatter_add", "sort", "topk", "tril", "triu", "cat", "roll"),
)
PRODUCTS = ("addmm", "addmv", "baddbmm", "bmm", "dot", "mm")
IMAGES = (
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "avg_pool2d", "avg_pool2d_backward"),
    *("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "upsample_bilinear2d"),
    *("upsample_bilinear2d_backward", "upsample_nearest2d", "upsample_nearest2d_backward"),
)
NORMS = ("native_batch_norm", "native_batch_norm_backward")
LOSSES = ("mse_loss", "mse_loss_backward", "nll_loss_backward", "nll_loss_forward")
RANDOM = ("bernoulli_", "exponential_", "multinomial", "normal_", "random_", "randperm", "uniform_")

OPERATORS = (
    *FILLS,
    *UNARY,
    *BINARY,
    *TERNARY,
    *GRADIENTS,
    *REDUCTIONS,
    *INDEXED,
    *PRODUCTS,
    *IMAGES,
    *NORMS,
    *LOSSES,
    *RANDOM,
)
