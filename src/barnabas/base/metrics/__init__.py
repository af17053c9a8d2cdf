"""What is measured, of nodes and clients alike: quantities over windows, metrics by name, text for Prometheus."""
