"""What `pliant bench watch` needs of packing."""
