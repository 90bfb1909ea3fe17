"""The job's side: a process registers with its node's agent, and starts one if there is none."""
