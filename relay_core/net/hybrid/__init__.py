"""Both ends of a hybrid connection: connecting as a sender, listening, accepting."""
