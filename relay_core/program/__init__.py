"""Entry point, logging, signal handling and credential options of the command line programs."""
