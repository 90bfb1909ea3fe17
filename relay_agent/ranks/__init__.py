"""Which process of a distributed job this is."""
