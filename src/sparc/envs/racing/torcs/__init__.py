"""The simulator: TORCS's installation, our worker, and the processes that drive in it."""
