"""What `pliant bench watch` needs of bins."""
