"""Expressions that relay-client evaluates in this process, beside any debugger."""
