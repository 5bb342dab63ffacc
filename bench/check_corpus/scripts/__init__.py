"""Scripts of the corpus, written as strangers write them. Each runs alone, without arguments."""
