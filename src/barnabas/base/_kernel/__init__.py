"""The compiled part of what all layers share."""
