"""DriftingBoat: a boat held at a buoy in a current that it cannot see."""
