"""The versions of the plugin API, and the words for what a plugin's functions take and return."""

from __future__ import annotations

from keel.registration import bad

API = 2
"""The version of the plugin API. It rises if fields are added, are removed or change their meaning.
``docs/how/plugin-api.md`` lists the changes.
"""
OLDEST_API = 1
"""The oldest version whose plugins work unchanged."""
ANSWER = "it takes a Call, and returns None to take it, or the sentence that says why not"
BEGINS = "it takes a graph, and may take a CompileContext as ctx, and returns a function that compiles the graph"
BUILDS = "it takes the sources of a graph, and returns a launcher for each"
COMPILES_KERNELS = "it takes the sources of a graph and the name of a machine, or None, and returns CodeObject values"
LOADS_KERNELS = "it takes CodeObject values and the sources that they are of, and returns a launcher for each source"
MAKES_MEMORY = "it returns the DeviceMemory of the device"
CLAIMS = "it takes a graph and the set of its calls that the backend takes, and returns Fusion and Veto values"
COMPILES = "it takes a graph, and may take a CompileContext as ctx, and returns a function of its inputs"
PREFERS = "it takes a Call that the backend takes, and returns True or False"
WARM_UP = "it prepares what every graph needs"
FINGERPRINT = "it returns a text that identifies its code, its compiler and the machine"
PROBE = "it returns None, or the sentence that says why the backend cannot run here"


def checked_api(what: str, api: object) -> None:
    """Checks that the version of the plugin API is a number. It is compared when the plugin is used."""
    if isinstance(api, bool) or not isinstance(api, int):
        bad(f"{what} has api={api!r}.", f"Write the version of the plugin API as a number, or leave it out: api={API}.")
