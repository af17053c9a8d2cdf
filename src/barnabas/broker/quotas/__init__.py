"""What clients may use of a broker, and what happens to those who use more."""
