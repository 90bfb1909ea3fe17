"""What an editor is shown about its connection: who is waited for, what is lost, and why a session has ended."""
