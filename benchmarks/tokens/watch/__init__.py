"""What `pliant bench watch` needs of tokens."""
