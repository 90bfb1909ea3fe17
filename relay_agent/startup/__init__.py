"""What `relay-agent run` does in the job's processes: which of them register, how, and why others cannot."""
