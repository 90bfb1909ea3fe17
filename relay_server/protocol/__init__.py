"""The relay's side of the Hybrid Connections protocol, sans-IO: requests, responses, refusals."""
