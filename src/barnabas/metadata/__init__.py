"""The cluster's metadata: what the controller decides, and the image that every node holds of it.

`controller.Controller` turns a request into records and an answer; `replay.ImageBuilder` turns records into the next
`image.ClusterImage`. Nothing here waits, reads a clock or touches a file.
"""
