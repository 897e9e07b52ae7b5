"""Every record and diagnosis over time  ->  tables to ask: what changed when, and was it real."""
