"""Expressions that relay-client evaluates in this process, alongside any debugger."""
