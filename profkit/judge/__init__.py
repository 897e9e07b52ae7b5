"""What a rule, a finding and an estimate are, whatever is judged: a launch or a program's step."""
