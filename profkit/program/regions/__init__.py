"""Regions of a step against their floors: what it must take, and which change would bring it there."""
