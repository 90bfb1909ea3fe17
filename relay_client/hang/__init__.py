"""The verdict on a job that hangs: where ranks are waiting, which ranks are missing, and where these ranks are."""
