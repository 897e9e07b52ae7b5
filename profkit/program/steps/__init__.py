"""A process  ->  its steps, who launched what in them, and where their time goes."""
