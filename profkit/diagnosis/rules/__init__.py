"""One launch  ->  a finding, one file per hardware area."""
