"""Two folders of artifacts  ->  what moved between them, whether it is real, and why."""
