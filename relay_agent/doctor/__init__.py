"""The checks of `relay-agent doctor` beyond those that the client has too."""
