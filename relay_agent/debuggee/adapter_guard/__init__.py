"""The directory on the PYTHONPATH of debugpy's adapter; nothing imports it as a package."""
