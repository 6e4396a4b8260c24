"""What it means: statistics, figures, and the report page."""
