"""Where run folders go if nobody names a folder."""

OUTPUT_DIR = "canary_output"
