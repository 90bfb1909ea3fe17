"""The Debug Adapter Protocol, as far as this project speaks it: framing, and a small client."""
