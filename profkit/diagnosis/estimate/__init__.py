"""One launch and a cause  ->  what its removal is worth: a bound, an expectation, an interval."""
