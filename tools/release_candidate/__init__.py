"""Makes the files of a release and checks them as a stranger would use them."""
