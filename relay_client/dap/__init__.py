"""A small client of the debug adapter protocol, and an observer of the sessions of others."""
