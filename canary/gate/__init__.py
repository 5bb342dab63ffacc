"""The gate of a pull request: an untrusted training job and a trusted reporting job."""
