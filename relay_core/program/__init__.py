"""What the command lines share: entry point, logging, signals, credential options."""
