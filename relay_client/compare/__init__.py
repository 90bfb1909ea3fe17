"""Evaluates one expression in all ranks, groups equal values with outliers first, and finds where values differ."""
