"""The part of `canary exec` that runs inside the user's training process."""
