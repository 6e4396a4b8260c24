"""A policy in a world: acting with a history, episodes without learning, evaluation, adaptation."""
