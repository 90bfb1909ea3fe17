"""The WebSocket protocol (RFC 6455), sans-IO."""
