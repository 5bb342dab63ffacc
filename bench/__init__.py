"""The programs behind every figure that README and docs claim."""
