"""`relay-client tensorboard --runs`: copies the event files of runs, and shows them in one TensorBoard."""
