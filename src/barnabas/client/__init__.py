"""Producers, consumers and admins."""
