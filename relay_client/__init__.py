"""On the laptop: local ports that lead to debuggers on compute you cannot reach."""
