"""The grammars of the options that take lists of ports or ranks."""
