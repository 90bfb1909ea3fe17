"""A small client of the debug adapter protocol, facts about debugpy, and an observer of the sessions of others."""
