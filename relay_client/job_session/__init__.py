"""One debug session for all ranks of a job: one editor, and one debugger for each rank."""
