"""MuJoCo's robots in a wind that they cannot see."""
