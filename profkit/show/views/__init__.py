"""Each noun (diagnosis, comparison, claims, search ...)  ->  blocks and text for people."""
