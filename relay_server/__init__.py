"""A relay server that implements Azure Relay Hybrid Connections, for laptops, CI and private clusters."""
