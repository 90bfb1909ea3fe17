"""Tests in a real VS Code. A package, so that they share one editor and one event loop: it starts in ten seconds."""
