"""MuJoCo's robots with motors of a strength that they cannot see."""
