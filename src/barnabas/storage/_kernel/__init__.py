"""What an append does to a log, compiled: the state that every batch changes, and the ordinary batch's way into it.

`appending` holds the fields that change with each batch, as bases of the classes that have the rules. What is not
ordinary is left to those, and nothing was changed then.
"""
