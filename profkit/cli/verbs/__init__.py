"""A verb is one file here; its name is the file's. Nothing else lists them."""
