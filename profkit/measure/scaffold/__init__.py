"""A name  ->  a problem's folder to begin with; the templates are the files beside this one."""
