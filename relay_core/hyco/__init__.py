"""The Azure Relay Hybrid Connections protocol, sans-IO.

No module here opens a socket, reads a clock or draws a random number; `relay_core.net` does.
"""

from relay_core.hyco.address import Endpoint
from relay_core.hyco.connection_string import ConnectionString
from relay_core.hyco.sas import SasToken, mint

__all__ = ["ConnectionString", "Endpoint", "SasToken", "mint"]
