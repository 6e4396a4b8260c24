"""From a trained run to a robot: exports, their contract, and runtimes without any framework."""
