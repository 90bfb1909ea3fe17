"""The stacks of many processes, grouped and rendered."""
