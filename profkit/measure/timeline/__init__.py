"""A command  ->  its timeline, recorded by a small library that the driver loads into it."""
