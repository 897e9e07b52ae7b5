"""A program  ->  one report. The only room that starts ncu."""
