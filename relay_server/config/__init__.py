"""What a relay serves: the model, its file, and what `relay-server init` makes."""
