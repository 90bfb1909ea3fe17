"""The checks of `relay-client doctor` beyond those that the agent has too."""
