"""Asynchronous rollouts: workers collect experience, a pool looks after them, the learner never waits for either."""
