"""How values of the job are shown: short texts for tensors, arrays and tables, deadlines for slow ones, statistics."""
