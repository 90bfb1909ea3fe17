"""The layers of a local connection that buffer and check the bytes that pass through it; sans-IO."""
