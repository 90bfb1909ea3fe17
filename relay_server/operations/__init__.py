"""Operation of a relay that runs for months: reloading of changed files, supervision and metrics."""
