"""The relay for laptops, CI and private clusters: speaks the protocol of Azure Relay Hybrid Connections."""
