"""debugpy's and pydevd's private functions: a table of those that relay-debug uses, and what happens without them."""
