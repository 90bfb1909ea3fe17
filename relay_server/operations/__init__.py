"""Operation of a relay that runs for months: changed files, supervision and figures."""
