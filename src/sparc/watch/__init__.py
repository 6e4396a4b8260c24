"""To look at: videos of a policy, and laps beside the built-in AI's."""
