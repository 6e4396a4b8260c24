"""The fault suite: kills, damaged files and hostile inputs, each try with the answer that is expected of it."""
