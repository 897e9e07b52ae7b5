"""What is written beside a kernel and beside a report  ->  headers and run records, read and written."""
