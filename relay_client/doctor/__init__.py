"""The checks of `relay-client doctor` that `relay-agent doctor` does not have."""
