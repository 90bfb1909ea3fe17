"""The resources that a node and its processes use."""
