"""The verdict on a job that hangs: which collective operation waits, who has entered it, who is missing, and where."""
