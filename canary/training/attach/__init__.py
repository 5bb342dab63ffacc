"""The half of `canary exec` that runs inside the user's own training process."""
