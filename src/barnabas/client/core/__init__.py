"""The logic of the clients: plain and synchronous, handed time and chance."""
