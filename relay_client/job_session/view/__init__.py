"""What an editor that is attached to all ranks shows: threads, lines, and the answers to console commands."""
