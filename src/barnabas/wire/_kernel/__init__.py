"""What is done for every frame, compiled."""
