"""Six models in which each layer's work is told by its size, and what a recording says of them."""
