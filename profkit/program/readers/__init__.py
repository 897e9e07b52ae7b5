"""A recording of any kind  ->  a Timeline. Adding a kind is one row of `open.KINDS`."""
