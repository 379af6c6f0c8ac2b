"""What each system's clients send, and the changes that are planted in it."""
