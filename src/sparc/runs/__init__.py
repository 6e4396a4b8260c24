"""One run on disk: its directory, its checkpoints, its policy, its tests."""
