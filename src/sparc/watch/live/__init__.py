"""`sparc live`: a page on this machine where one moves the context while policies drive.

stage    one run: its environment, its policy, and what φ(h) says about the context
session  the thread that simulates: time, commands, frames
server   the page and its WebSocket
"""
