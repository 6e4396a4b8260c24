"""`sparc live`: a page on this machine where one moves the context while policies drive.

simulation  one policy in its environment
belief      what φ(h) says about the context
session     the thread that runs all simulations: time, commands, frames
server      the page and its WebSocket
"""
