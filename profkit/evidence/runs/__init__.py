"""A folder of artifacts  ->  runs: a record and its launches; which may be compared."""
