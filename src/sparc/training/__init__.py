"""The loop: collect, store, update, evaluate, checkpoint."""
