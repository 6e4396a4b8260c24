"""Many runs: suites, their members' processes, and the tables that come out."""
