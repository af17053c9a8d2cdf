"""What is done for every request, compiled."""
