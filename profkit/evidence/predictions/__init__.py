"""What a header or a rule predicted  ->  kept, broken or not decidable."""
