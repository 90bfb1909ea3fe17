"""What the editor of all ranks is shown: threads, lines, and the answers to console commands."""
