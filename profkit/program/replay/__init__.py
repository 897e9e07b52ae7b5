"""A step and a change to it  ->  what the change saves of the step."""
