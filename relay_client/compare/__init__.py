"""One expression in all ranks: equal values grouped, the odd one first, and where values differ."""
