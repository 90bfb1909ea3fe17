"""Configuration of a relay: the model, its TOML file, certificates, and `relay-server init`."""
