"""The program that stands in for debugpy's adapter; it is run by its path and never imported."""
