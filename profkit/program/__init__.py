"""A whole program's timeline  ->  where its step goes, and what to do about it first."""
