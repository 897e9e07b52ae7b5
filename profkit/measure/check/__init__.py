"""A built variant  ->  is it right: values, guards, sanitizers."""
