"""What a follower's fetch touches in every partition, compiled: most of them have nothing new, and are many.

`following` holds the fields, as bases of the classes that have the rules, and passes over the partitions of which there
is nothing to say. Whatever else there is, it leaves to the rules, and has changed nothing then.
"""
