"""Racing in TORCS."""
