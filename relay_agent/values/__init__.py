"""Display of the job's values: short texts for tensors, arrays and tables; deadlines for slow values; statistics."""
