"""Table of the private functions of debugpy and pydevd that relay-debug uses, with the effect if one is missing."""
