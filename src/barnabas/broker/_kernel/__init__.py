"""Whole requests whose every part is ordinary, compiled.

`produce` reads a Produce request, appends its batches and makes the answer. It decides nothing: where anything asks for
a decision it has changed nothing, and the request goes the way of all others.
"""
