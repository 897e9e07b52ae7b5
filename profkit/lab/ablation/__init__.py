"""A kernel's PTX and one call of it  ->  what each cause costs, measured by taking it away."""
