"""What the user typed  ->  rows of reports, runs, and what a measuring verb works on."""
