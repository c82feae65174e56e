"""Defects planted in models of the zoo, each of which `keel minify` reduces and `keel compare` locates."""
