"""MuJoCo's robots as Gymnasium defines them, one or many at once; each family adds a context of its own."""
