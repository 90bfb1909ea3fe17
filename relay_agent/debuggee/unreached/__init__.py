"""Finds code that an attached debugger does not reach, although its breakpoints count as set."""
