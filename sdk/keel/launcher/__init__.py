"""How kernels are called: launchers in C, for any loop-level backend."""

from keel.launcher.native import address_of, c_library, launcher_type, native_launcher

__all__ = ["address_of", "c_library", "launcher_type", "native_launcher"]
