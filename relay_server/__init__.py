"""A relay server for laptops, CI and private clusters that implements Azure Relay Hybrid Connections."""
