"""The controller role, and the way to the controller."""
