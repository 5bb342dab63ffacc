"""The gate of a pull request: an untrusted half that trains, a trusted half that answers."""
