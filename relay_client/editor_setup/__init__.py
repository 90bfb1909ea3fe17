"""What `relay-client init` writes and prints for each editor. Sans-IO: texts in, texts out."""
