"""How kernels are called: launchers in C, for any loop-level backend."""

from keel.launcher.native import c_library, native_launcher

__all__ = ["c_library", "native_launcher"]
