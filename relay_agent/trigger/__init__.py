"""Observes lines of a running job without stopping it; imported only when the first watch arrives."""
