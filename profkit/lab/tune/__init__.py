"""A variant with tunables  ->  the fastest choice that passes every gate, or the defaults again."""
