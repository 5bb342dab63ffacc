"""`canary check`: is this training right, with nothing to compare it with?"""
