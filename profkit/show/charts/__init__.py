"""Launches and ladders  ->  the numbers of a picture, for whoever draws it: no drawing library."""
