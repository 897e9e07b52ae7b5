"""What a launch did, what its machine can do, what a change would bring: all prices are made here."""
