"""What a look records for the rules: facts that no other signal has."""
