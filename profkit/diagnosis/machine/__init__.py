"""One launch  ->  how busy each unit of the machine is, against what it can really reach."""
