"""The checks of `relay-agent doctor` that it does not share with `relay-client doctor`."""
